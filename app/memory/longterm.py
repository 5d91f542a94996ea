"""Long-term memory as its users see it: phases, the GMI and tools know this and nothing behind it."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from app.domain.memory import Memory, MemoryPlace, NewMemory, Recall, Recalled
from app.domain.memory_policy import NewSummary


class LongTermMemory(Protocol):
    """Remembers, and finds again. Both may raise AppError when the database or an embedding model is away."""

    async def recall(self, wanted: Recall) -> Recalled:
        """Give what fits the query, the best first, within the bounds; what is found is kept the longer for it."""
        ...

    async def remember(self, notes: Sequence[NewMemory]) -> tuple[Memory, ...]:
        """Keep the notes and give them. Those of a conversation that has been erased meanwhile are not kept."""
        ...


@runtime_checkable
class LearnsFromReplies(Protocol):
    """A long-term memory that is told which reply came of what it gave. Nobody waits; what it raises is logged."""

    async def learn(self, place: MemoryPlace, feedback: Any, reply: str) -> None:
        """Take the `feedback` of what was told in a turn, with the turn's reply as it was stored."""
        ...


@runtime_checkable
class TakesSummaries(Protocol):
    """A long-term memory that is given the summaries that turns make. Nobody waits; what it raises is logged."""

    async def take_summary(self, summary: NewSummary) -> None:
        """Keep of the summary what its policy allows."""
        ...
