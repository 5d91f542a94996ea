"""What guards are told by whoever sets them up. Values alone, so that settings are read without the guards."""

from typing import Final, Literal

from app.domain.frozen import dataclass

Stage = Literal["input", "output"]
Kind = Literal["email", "phone", "card", "iban", "key"]
KINDS: Final[tuple[Kind, ...]] = ("key", "iban", "card", "email", "phone")
"""In the order in which they are looked for: an account number must not be taken for a telephone number first."""


@dataclass(frozen=True, slots=True)
class RequiredGuard:
    """A guard that must be there, and judge at these stages; each answer within `timeout_ms`."""

    id: str
    stages: tuple[Stage, ...] = ("input", "output")
    timeout_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Ceilings:
    """None is no ceiling. Lengths are characters; tokens are those of the whole turn, dollars of one operation."""

    input_characters: int | None = None
    reply_characters: int | None = None
    tokens: int | None = None
    dollars: float | None = None
