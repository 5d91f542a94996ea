"""The principal: whom a request comes from, and its scopes."""

from enum import StrEnum
from typing import Final

from app.domain.frozen import dataclass


class Scope(StrEnum):
    """What a key may do; no scope includes another.

    `chat` runs turns and changes conversations, `read` reads, `operator` reads what users are not shown: prompts.
    """

    CHAT = "chat"
    READ = "read"
    OPERATOR = "operator"


USUAL_SCOPES: Final = frozenset({Scope.CHAT, Scope.READ})
"""What a key may do that says nothing of it."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom a request comes from. Without API keys everybody is the same unauthenticated principal."""

    name: str
    organization_id: str = ""
    scopes: frozenset[Scope] = USUAL_SCOPES
    authenticated: bool = True


ANYBODY: Final = Principal(name="local", scopes=frozenset(Scope), authenticated=False)
"""Who calls where no keys are set: the service then listens on this machine alone."""
