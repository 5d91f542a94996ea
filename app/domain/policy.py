"""Settings that a turn is run by, as frozen values: filled once, passed down."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TurnPolicy:
    """How turns run. Durations are seconds, sizes are messages or bytes."""

    default_model: str
    max_tool_iterations: int = 5
    turn_timeout: float = 600.0
    history_limit: int = 100
    history_head: int = 2
    persistence: bool = True
    max_result_bytes: int = 4 << 20
    max_waiting_turns: int = 10


@dataclass(frozen=True, slots=True)
class LeasePolicy:
    """How a replica shows that it lives: renewed every `renew` seconds for `length` seconds."""

    renew: float = 3.0
    length: float = 10.0
    sweep: float = 2.0
