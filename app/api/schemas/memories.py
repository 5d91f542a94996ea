"""Bodies of memories: what is remembered of a user."""

from pydantic import Field

from app.api.schemas.base import Output
from app.domain.memory import MemoryScope, MemoryType


class MemoryOut(Output):
    """One thing that is remembered. `strength` is what it had when it was last told; it fades from then on."""

    memory_id: str
    scope: MemoryScope
    type: MemoryType
    source: str
    category: str | None
    content: str
    conversation_id: str
    persona_id: str
    strength: float
    stability_seconds: float
    importance: float = Field(description="From 0 to 1; from 0.9 on it is never forgotten for having faded.")
    recalled: int
    created_at: str
    accessed_at: str


class ErasedOut(Output):
    """How many conversations were erased with a user."""

    conversations: int


class ForgottenOut(Output):
    """How much was forgotten."""

    forgotten: int
