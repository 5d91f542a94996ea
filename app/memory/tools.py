"""Memory as tools of the runtime: for the caller of the turn, and for nobody else."""

from collections.abc import Sequence

from app.domain.memory import Memory, MemoryPlace, MemoryScope, NewMemory, Recall
from app.memory.longterm import LongTermMemory
from app.tools.base import Tool, ToolContext
from app.tools.builtin.memory import MemorySearch, Remember

SHOWN_CHARACTERS = 12_000


def memory_tools(memories: LongTermMemory, *, on: bool) -> list[Tool]:
    """Give the tools that look up and remember; unless they are on, nothing is kept and nothing found."""

    async def search(context: ToolContext, query: str, limit: int) -> Sequence[Memory]:
        scopes: tuple[MemoryScope, ...] = ("user", "persona", "conversation")
        if not on:
            return ()
        wanted = Recall(_place(context), query, scopes, top_k=limit, max_characters=SHOWN_CHARACTERS)
        return (await memories.recall(wanted)).memories[:limit]

    async def keep(context: ToolContext, text: str, category: str | None) -> Memory | None:
        if not on:
            return None
        # The model has chosen the words: they are not told as the user's own later.
        note = NewMemory(_place(context), "user", text, "semantic", "tool", category, explicit=True)
        return next(iter(await memories.remember([note])), None)

    return [MemorySearch(search), Remember(keep)]


def _place(context: ToolContext) -> MemoryPlace:
    return MemoryPlace(context.caller, context.conversation_id, context.persona_id)
