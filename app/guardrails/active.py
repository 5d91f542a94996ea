"""A guard made ready to be asked: what it has was looked up once, and what is required of it is laid over its own."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from app.domain.errors import ConfigurationError
from app.domain.frozen import dataclass
from app.guardrails.base import GuardConfig
from app.guardrails.terms import Stage

STAGES: Final[tuple[Stage, Stage]] = ("input", "output")
Method = Callable[..., object]


@dataclass(frozen=True, slots=True, eq=False)
class ActiveGuard:
    """A guard as it is asked; two of them are never equal, so each has a count of its own.

    `strict` guards are required ones: a malformed answer of theirs blocks.
    """

    id: str | None
    config: GuardConfig
    on_input: Method | None
    on_output: Method | None
    strict: bool = False

    def has(self, stage: Stage) -> bool:
        """Tell whether it judges at that stage."""
        return (self.on_input if stage == "input" else self.on_output) is not None

    @property
    def seconds(self) -> float | None:
        """How long it may take; None for ever."""
        limit = self.config.timeout_ms
        return limit / 1000 if limit is not None and limit > 0 else None

    def required(self, timeout_ms: float | None) -> "ActiveGuard":
        """Give it as a required guard: whatever its own config says, it fails closed, within that time."""
        limit = timeout_ms if timeout_ms is not None else self.config.timeout_ms
        return replace(self, config=replace(self.config, fail_closed=True, timeout_ms=limit), strict=True)


def activate(guard: Any, name: str | None = None) -> ActiveGuard:
    """Make a plain object ready; its own id goes before `name`. ConfigurationError for parts of the wrong kind."""
    if isinstance(guard, ActiveGuard):
        return guard
    own = getattr(guard, "id", None)
    found = own if own is not None else name
    config = getattr(guard, "config", None)
    stages = getattr(guard, "stages", None)
    if config is not None and not isinstance(config, GuardConfig):
        message = f"The config of the guardrail {found or type(guard).__name__!r} is no GuardConfig."
        raise ConfigurationError(message)
    if stages is not None and not set(stages) <= set(STAGES):
        message = f"The guardrail {found or type(guard).__name__!r} declares stages other than input and output."
        raise ConfigurationError(message)
    methods = {
        stage: getattr(guard, f"evaluate_{stage}", None) if stages is None or stage in stages else None
        for stage in STAGES
    }
    return ActiveGuard(
        id=str(found) if found is not None else None,
        config=config or GuardConfig(),
        on_input=methods["input"],
        on_output=methods["output"],
    )
