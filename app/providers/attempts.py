"""What a gateway tells beside a provider's events, and what it records of each attempt."""

from typing import Literal

from app.domain.frozen import dataclass
from app.domain.usage import Usage
from app.providers.base import ProviderEvent


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """The bill of an attempt that failed, given once and before anything of the next one (R284 to R289)."""

    usage: Usage
    hop: int
    provider: str
    model: str


@dataclass(frozen=True, slots=True)
class Serving:
    """The attempt that has begun to answer; given right before its first event."""

    hop: int
    provider: str
    model: str


GatewayEvent = ProviderEvent | AttemptFailed | Serving


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt, for ledger, metrics and log. Seconds are from its start; None means that it did not get there.

    `abandoned` means that its reader went away; the usage is then what the provider had told by that time.
    """

    provider: str
    model: str
    hop: int
    attempt: int
    outcome: Literal["delivered", "failed", "abandoned"]
    reason: str | None
    status: int | None
    usage: Usage | None
    first_output_seconds: float | None
    seconds: float
