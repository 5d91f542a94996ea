"""Required guards: without them nothing runs."""

from collections.abc import Sequence

from app.domain.frozen import dataclass
from app.guardrails.active import ActiveGuard
from app.guardrails.terms import RequiredGuard


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What is missing: whole guards, and stages (`id:stage`) of guards that are there."""

    missing: tuple[str, ...] = ()
    missing_stage: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Tell whether nothing is missing."""
        return not self.missing and not self.missing_stage

    @property
    def sentence(self) -> str:
        """Say it."""
        parts = [f"the guardrail {name!r} is not active" for name in self.missing]
        parts += [
            f"the guardrail {name.rpartition(':')[0]!r} does not judge {name.rpartition(':')[2]}"
            for name in self.missing_stage
        ]
        return f"What is required is missing: {'; '.join(parts)}."


def shortfall(required: Sequence[RequiredGuard], active: Sequence[ActiveGuard]) -> Shortfall:
    """Compare what is required with what is active."""
    by_id = {guard.id: guard for guard in active}
    return Shortfall(
        missing=tuple(entry.id for entry in required if entry.id not in by_id),
        missing_stage=tuple(
            f"{entry.id}:{stage}"
            for entry in required
            if entry.id in by_id
            for stage in entry.stages
            if not by_id[entry.id].has(stage)
        ),
    )
