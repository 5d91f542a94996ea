"""The principal: whom a request comes from, and its scopes."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Scope(StrEnum):
    """What a key may do. `chat` runs turns and changes conversations, `read` reads; neither includes the other."""

    CHAT = "chat"
    READ = "read"


ALL_SCOPES: Final[frozenset[Scope]] = frozenset(Scope)


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom a request comes from. Without API keys everybody is the same unauthenticated principal."""

    name: str
    organization_id: str = ""
    scopes: frozenset[Scope] = ALL_SCOPES
    authenticated: bool = True


ANYBODY: Final = Principal(name="local", authenticated=False)
"""Who calls where no keys are set: the service then listens on this machine alone."""
