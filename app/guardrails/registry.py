"""The guards that there are: those that judge everything, those that personas name, and those that are required."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import structlog

from app.domain.errors import ConfigurationError, GuardrailMissingError
from app.domain.frozen import dataclass
from app.domain.persona import Persona
from app.guardrails.active import ActiveGuard, activate
from app.guardrails.asking import Asking
from app.guardrails.required import shortfall
from app.guardrails.terms import RequiredGuard

MAX_HELD: Final = 200_000

OutputMode = Literal["stream", "hold", "sentence", "until_input_ok"]


@dataclass(frozen=True, slots=True)
class Report:
    """What a verdict callback is told: `final_text` is the text that the host gets, None when it gets none."""

    stream_id: str
    action: str
    guardrail_id: str | None
    reason_code: str | None
    final_text: str | None


OnVerdict = Callable[[Report], Awaitable[None] | None]


class Guards:
    """All guards of a process."""

    def __init__(
        self,
        everywhere: Iterable[Any] = (),
        *,
        named: Mapping[str, Any] | None = None,
        required: Sequence[RequiredGuard] = (),
        mode: OutputMode = "stream",
        on_verdict: OnVerdict | None = None,
        max_held: int = MAX_HELD,
    ) -> None:
        """`everywhere` judge all operations, in this order; a persona adds some of `named`.

        `max_held` is how many characters of a reply are held back at most before they are judged in parts.
        ConfigurationError when two have one id, or a required guard is not among those that judge everything.
        """
        self._everywhere = [activate(guard) for guard in everywhere]
        self._named = {name: activate(guard, name) for name, guard in (named or {}).items()}
        self._required = {entry.id: entry for entry in required}
        self._disabled: set[str] = set()
        self._on_verdict = on_verdict
        self._mode = mode
        self._log = structlog.get_logger(__name__)
        self.asking = Asking()
        self.max_held = max_held
        ids = [guard.id for guard in self._everywhere if guard.id is not None]
        if len(set(ids)) < len(ids):
            message = f"Two guardrails have the same id; the ids are {', '.join(sorted(ids))}."
            raise ConfigurationError(message)
        lack = shortfall(required, self._everywhere)
        if not lack.ok:
            raise ConfigurationError(lack.sentence, missing=lack.missing, missing_stage=lack.missing_stage)

    def disable(self, guard_id: str) -> None:
        """Take a guard out, at once and until `enable`; a required one makes every operation be refused."""
        self._disabled.add(guard_id)

    def enable(self, guard_id: str) -> None:
        """Undo `disable`."""
        self._disabled.discard(guard_id)

    def check_persona(self, persona: Persona) -> None:
        """ConfigurationError for a name that no guard has."""
        unknown = [name for name in persona.guardrails if self._find(name) is None]
        if unknown:
            known = ", ".join(sorted(self._named)) or "none"
            message = (
                f"The persona {persona.id!r} names guardrails that there are not: {', '.join(unknown)}. There are: "
                f"{known}. One of an installed package that nothing named when the service started needs a restart."
            )
            raise ConfigurationError(message)

    def active(self, names: Sequence[str] = ()) -> tuple[ActiveGuard, ...]:
        """Give the guards that judge an operation whose persona names these, in their order.

        GuardrailMissingError when a required guard is not active, or one that the persona names.
        """
        found = [guard for guard in self._everywhere if guard.id is None or guard.id not in self._disabled]
        ids = {guard.id for guard in found}
        for name in names:
            guard = self._find(name)
            if guard is not None and guard.id not in ids and guard.id not in self._disabled:
                found.append(guard)
                ids.add(guard.id)
        needed = [*self._required.values(), *(RequiredGuard(self._id_of(name), ()) for name in names)]
        lack = shortfall(needed, found)
        if not lack.ok:
            raise GuardrailMissingError(
                lack.sentence, missing=list(lack.missing), missing_stage=list(lack.missing_stage)
            )
        return tuple(
            guard.required(self._required[guard.id].timeout_ms) if guard.id in self._required else guard
            for guard in found
        )

    @property
    def may_judge_output(self) -> bool:
        """Tell whether there is a guard at all that judges output, for whatever persona."""
        return any(guard.has("output") for guard in (*self._everywhere, *self._named.values()))

    @property
    def mode(self) -> Literal["stream", "hold", "sentence"]:
        """How text goes out. A required output guard has the whole reply before anybody else does."""
        if any("output" in entry.stages for entry in self._required.values()):
            return "hold"
        return "stream" if self._mode == "until_input_ok" else self._mode

    @property
    def judges_input_beside(self) -> bool:
        """Tell whether input is judged while the turn is prepared; its verdict is there before anything is stored."""
        return self._mode == "until_input_ok"

    async def report(self, report: Report) -> None:
        """Tell the host of a verdict; what it raises changes nothing."""
        if self._on_verdict is None:
            return
        try:
            told = self._on_verdict(report)
            if told is not None:
                await told
        except Exception:  # noqa: BLE001 - a listener decides nothing
            self._log.exception("guardrail.verdict_callback_failed")

    def _find(self, name: str) -> ActiveGuard | None:
        named = self._named.get(name)
        return named or next((guard for guard in self._everywhere if guard.id == name), None)

    def _id_of(self, name: str) -> str:
        found = self._find(name)
        return (found.id if found is not None else None) or name
