"""What operators ask about sessions: their reasoning traces."""

from collections.abc import Callable

from app.domain.errors import MalformedError, NotFoundError
from app.domain.session import SessionKey
from app.domain.turn import Caller
from app.domain.views import Page, TraceEntryView
from app.store import sessions
from app.store.database import Database
from app.store.pauses import iso
from app.store.sessions import TraceRecord
from app.turn.facade.queries import LONGEST_POSITION


class Sessions:
    """Reads what sessions keep; another's session looks like one that is not there."""

    def __init__(self, database: Database, admit: Callable[[Caller], Caller]) -> None:
        """Keep the database, and what each caller passes first."""
        self._database = database
        self._admit = admit

    async def trace(
        self, caller: Caller, session_id: str, *, cursor: str | None, limit: int, descending: bool
    ) -> Page[TraceEntryView]:
        """List the entries of a session's trace by position; NotFoundError when nothing is kept of the session."""
        after = None
        if cursor is not None:
            if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= LONGEST_POSITION):
                message = f"The cursor {cursor[:60]!r} can't be read; send the next_cursor of the page before."
                raise MalformedError(message)
            after = int(cursor)
        key = SessionKey.of(self._admit(caller), session_id)
        async with self._database.transaction() as connection:
            state = await sessions.find(connection, key)
            found = await sessions.trace_page(connection, key, after=after, limit=limit + 1, descending=descending)
        if not state.version:
            message = f"There is no session {session_id!r}."
            raise NotFoundError(message, session_id=session_id)
        following = str(found[limit - 1].position) if len(found) > limit else None
        return Page(tuple(map(_view, found[:limit])), following)


def _view(record: TraceRecord) -> TraceEntryView:
    entry, origin = record.entry, record.origin
    return TraceEntryView(
        position=record.position,
        at=iso(entry.at),
        type=entry.type,
        message=entry.message,
        related_id=entry.related_id,
        details=entry.details or {},
        conversation_id=origin.conversation_id,
        stream_id=origin.stream_id,
        turn_id=origin.turn_id,
        persona_id=origin.persona_id,
    )
