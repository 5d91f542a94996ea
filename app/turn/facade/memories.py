"""What users ask of their memory: what is remembered, and to have it forgotten."""

from collections.abc import Callable
from datetime import datetime

from app.domain.errors import NotFoundError
from app.domain.turn import Caller
from app.domain.views import MemoryView, Page
from app.store import traces
from app.store.database import Database
from app.store.pauses import iso
from app.store.traces import TraceRecord
from app.turn.facade.queries import read_cursor, write_cursor


class MemoryDesk:
    """The caller's own traces; another's look like ones that are not there."""

    def __init__(self, database: Database, admit: Callable[[Caller], Caller]) -> None:
        """Keep the database, and what each caller passes first."""
        self._database = database
        self._admit = admit

    async def page(self, caller: Caller, *, cursor: str | None, limit: int) -> Page[MemoryView]:
        """List what is remembered of the caller, the newest first."""
        before = None
        if cursor is not None:
            moment, trace_id = read_cursor(cursor)
            before = (datetime.fromisoformat(moment), trace_id)
        async with self._database.transaction() as connection:
            found = await traces.page(connection, self._admit(caller), before=before, limit=limit + 1)
        more = found[limit] if len(found) > limit else None
        following = write_cursor(more.created_at.isoformat(), more.trace_id) if more else None
        return Page(tuple(map(_view, found[:limit])), following)

    async def remove(self, caller: Caller, memory_id: str) -> None:
        """Forget one trace, or raise NotFoundError."""
        async with self._database.transaction() as connection:
            if not await traces.remove(connection, self._admit(caller), memory_id):
                message = f"There is no memory {memory_id!r}."
                raise NotFoundError(message, memory_id=memory_id)

    async def remove_all(self, caller: Caller) -> int:
        """Forget all that is remembered of the caller; tells how much it was."""
        async with self._database.transaction() as connection:
            return await traces.remove(connection, self._admit(caller))


def _view(record: TraceRecord) -> MemoryView:
    return MemoryView(
        memory_id=record.trace_id,
        scope=record.scope,
        type=record.type,
        source=record.source,
        category=record.category,
        content=record.content,
        conversation_id=record.conversation_id,
        persona_id=record.persona_id,
        strength=record.strength,
        stability_seconds=record.stability,
        importance=record.importance,
        recalled=record.recalled,
        created_at=iso(record.created_at),
        accessed_at=iso(record.accessed_at),
    )
