"""Long-term memory as its users see it: phases, the GMI and tools know this and nothing behind it."""

from collections.abc import Sequence
from typing import Protocol

from app.domain.memory import Memory, NewMemory, Recall, Recalled


class LongTermMemory(Protocol):
    """Remembers, and finds again. Both may raise AppError when the database or an embedding model is away."""

    async def recall(self, wanted: Recall) -> Recalled:
        """Give what fits the query, the best first, within the bounds; what is found is kept the longer for it."""
        ...

    async def remember(self, notes: Sequence[NewMemory]) -> tuple[Memory, ...]:
        """Keep the notes and give them. Those of a conversation that has been erased meanwhile are not kept."""
        ...
