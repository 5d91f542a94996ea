"""What clients ask about conversations, streams and pauses. Another's things look like things that are not there."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from app.domain.errors import AlreadyExistsError, ClosedStreamError, InvalidStateError, MalformedError, NotFoundError
from app.domain.ids import conversation_of, fresh, row_key
from app.domain.jsontext import dumps, loads
from app.domain.messages import Message
from app.domain.pause import PauseState
from app.domain.turn import Caller, Pause, StreamStatus
from app.domain.views import ConversationView, Cursor, MessageView, Page, StreamView
from app.store import claims, conversations, documents, messages, pauses, sessions, streams, traces
from app.store.conversations import ConversationRecord, unknown_conversation
from app.store.database import Connection, Database
from app.store.messages import MessageRecord, NewMessage
from app.store.pauses import PauseRecord, iso
from app.store.streams import StreamRecord

LONGEST_POSITION: Final = 18

_ANSWERED: Final = frozenset({"ended", "blocked"})
"""Why a stream is closed on which the results of its last pause were accepted."""


class Queries:
    """Reads and small writes, one transaction each."""

    def __init__(self, database: Database) -> None:
        """Keep the database."""
        self._database = database

    async def stream(self, caller: Caller, stream_id: str) -> StreamRecord:
        """Give the caller's stream, or raise NotFoundError."""
        conversation = conversation_of(stream_id)
        record = None
        if conversation is not None:
            async with self._database.statement() as connection:
                record = await streams.find_stream(connection, conversation, stream_id)
        mine = record is not None and (record.user_id, record.organization_id) == (
            caller.user_id,
            caller.organization_id,
        )
        if record is None or not mine:
            message = f"There is no stream {stream_id!r}."
            raise NotFoundError(message, stream_id=stream_id)
        return record

    async def stream_view(self, caller: Caller, stream_id: str) -> StreamView:
        """Give a stream's state, with the pending request while it waits."""
        record = await self.stream(caller, stream_id)
        pending = None
        if record.pause_id is not None:
            async with self._database.statement() as connection:
                pause = await pauses.find(connection, record.conversation, record.pause_id)
            pending = pause.public().to_json() if pause is not None else None
        return StreamView(
            stream_id=record.stream_id,
            conversation_id=record.conversation_id,
            turn_id=record.turn_id,
            status=record.status,
            final_response=record.final_response,
            pending_request=pending,
            error=record.error,
            usage=record.usage,
            last_event_id=str(record.last_end) if record.last_end else None,
        )

    async def pause(self, conversation: UUID, pause_id: str) -> pauses.PauseRecord | None:
        """Give one pause, whatever its state."""
        async with self._database.statement() as connection:
            return await pauses.find(connection, conversation, pause_id)

    async def held_on(self, record: StreamRecord, pause_id: str | None) -> PauseRecord:
        """Give the pause that waits on the stream, or the refusal that the pages name (R81 to R88).

        A refusal of results that were accepted before tells where their continuation begins.
        """
        if record.status.closed:
            message = f"The stream {record.stream_id} is closed ({record.close_reason}); it takes no results."
            place = record.continuation_of(pause_id) if record.close_reason in _ANSWERED else None
            where = _where(record, place)
            raise ClosedStreamError(message, reason=record.close_reason, continued_on=record.continued_on, **where)
        if record.status is StreamStatus.RUNNING or record.pause_id is None:
            message = "The pause of this stream is being continued, or the turn has not paused yet."
            raise InvalidStateError(message, **_where(record, Cursor(record.first_of(record.fence), 1)))
        if pause_id is not None and pause_id != record.pause_id:
            message = f"The stream waits for the pause {record.pause_id}, not for {pause_id}."
            raise InvalidStateError(message, pause_id=record.pause_id)
        pause = await self.pause(record.conversation, record.pause_id)
        if pause is None or pause.state is not PauseState.HELD:
            await self.check_held(record, pause_id)
            message = "The pause was continued or ended in the meantime."
            raise InvalidStateError(message, pause_id=record.pause_id)
        return pause

    async def check_held(self, record: StreamRecord, pause_id: str | None) -> None:
        """Look at the stream anew; raise what `held_on` does if another operation has it since the record was read.

        Of two posts at once the other is told the same however far the one that was taken has come (R89).
        """
        async with self._database.statement() as connection:
            newer = await streams.find_stream(connection, record.conversation, record.stream_id)
        if newer is None or newer.fence == record.fence:
            return
        if newer.close_reason in _ANSWERED:
            message = "The pause of this stream was continued by other results in the meantime."
            raise InvalidStateError(message, **_where(newer, newer.continuation_of(record.pause_id)))
        await self.held_on(newer, pause_id)

    async def pending_request(self, caller: Caller, conversation_id: str) -> Pause | None:
        """Give the pause that the conversation holds."""
        async with self._database.transaction() as connection:
            record = await self._conversation(connection, caller, conversation_id)
            pause = await pauses.held(connection, record.id)
        return pause.public() if pause is not None else None

    async def pending_requests(self, caller: Caller, cursor: str | None, limit: int) -> Page[Pause]:
        """List the pauses that wait for the caller, the oldest first."""
        after = None
        if cursor is not None:
            moment, pause_id = read_cursor(cursor)
            after = (datetime.fromisoformat(moment), pause_id)
        async with self._database.transaction() as connection:
            found = await pauses.waiting(connection, caller, after=after, limit=limit + 1)
        more = found[limit - 1] if len(found) > limit else None
        following = write_cursor(more.requested_at.isoformat(), more.pause_id) if more else None
        return Page(tuple(pause.public() for pause in found[:limit]), following)

    async def create_conversation(
        self,
        caller: Caller,
        *,
        conversation_id: str | None,
        session_id: str | None,
        persona_id: str | None,
        title: str | None,
        metadata: Mapping[str, Any],
        initial: tuple[Message, ...],
    ) -> ConversationView:
        """Make a conversation with initial messages; AlreadyExistsError when the caller's name for it is taken."""
        name = conversation_id or fresh("conv")
        key = row_key(caller.organization_id, name)
        async with self._database.transaction() as connection:
            made = await conversations.create(
                connection,
                caller,
                name,
                session_id=session_id or name,
                title=title,
                metadata=metadata,
                persona_id=persona_id,
            )
            if not made:
                message = f"The conversation id {name!r} is taken; choose another, or leave it out."
                raise AlreadyExistsError(message, conversation_id=name)
            await messages.append(connection, key, [NewMessage(fresh("msg"), message) for message in initial])
            return _conversation_view(await self._conversation(connection, caller, name))

    async def conversation(self, caller: Caller, conversation_id: str) -> ConversationView:
        """Give a conversation."""
        async with self._database.transaction() as connection:
            return _conversation_view(await self._conversation(connection, caller, conversation_id))

    async def conversation_page(self, caller: Caller, cursor: str | None, limit: int) -> Page[ConversationView]:
        """List the caller's conversations, the newest change first."""
        before = None
        if cursor is not None:
            moment, key = read_cursor(cursor)
            before = (datetime.fromisoformat(moment), UUID(key))
        async with self._database.transaction() as connection:
            found = await conversations.page(connection, caller, before=before, limit=limit + 1)
        more = found[limit - 1] if len(found) > limit else None
        following = write_cursor(more.updated_at.isoformat(), str(more.id)) if more else None
        return Page(tuple(map(_conversation_view, found[:limit])), following)

    async def change_conversation(
        self, caller: Caller, conversation_id: str, changes: Mapping[str, Any]
    ) -> ConversationView:
        """Change title or metadata."""
        async with self._database.transaction() as connection:
            record = await self._conversation(connection, caller, conversation_id)
            if changes:
                await conversations.change(connection, record.id, changes)
            return _conversation_view(await self._conversation(connection, caller, conversation_id))

    async def erase_conversation(self, caller: Caller, conversation_id: str) -> list[str]:
        """Delete a conversation with all that belongs to it, also while an operation runs; gives its streams."""
        async with self._database.transaction() as connection:
            record = await self._conversation(connection, caller, conversation_id)
            await claims.lock(connection, record.id)
            names = await streams.names(connection, record.id)
            await sessions.forget(connection, record.id)
            await documents.forget(connection, record.id)
            await traces.forget(connection, record.id)
            await conversations.erase(connection, record.id)
        return names

    async def message_page(
        self, caller: Caller, conversation_id: str, *, cursor: str | None, limit: int, descending: bool
    ) -> Page[MessageView]:
        """List a conversation's messages in order of position."""
        after = None
        if cursor is not None:
            if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= LONGEST_POSITION):
                raise _bad_cursor(cursor)
            after = int(cursor)
        async with self._database.transaction() as connection:
            record = await self._conversation(connection, caller, conversation_id)
            found = await messages.page(connection, record.id, after=after, limit=limit + 1, descending=descending)
        following = str(found[limit - 1].entry.position) if len(found) > limit else None
        return Page(tuple(map(_message_view, found[:limit])), following)

    async def _conversation(self, connection: Connection, caller: Caller, conversation_id: str) -> ConversationRecord:
        key = row_key(caller.organization_id, conversation_id)
        record = await conversations.find(connection, key, caller)
        if record is None:
            raise unknown_conversation(conversation_id)
        return record


def _where(record: StreamRecord, place: Cursor | None) -> dict[str, str]:
    """Give what a refusal tells of a continuation that begins at the place; nothing where there is none."""
    return {} if place is None else {"stream_id": record.stream_id, "first_event_id": str(place)}


def _conversation_view(record: ConversationRecord) -> ConversationView:
    return ConversationView(
        conversation_id=record.conversation_id,
        user_id=record.user_id,
        session_id=record.session_id,
        persona_id=record.persona_id,
        title=record.title,
        metadata=record.metadata,
        created_at=iso(record.created_at),
        updated_at=iso(record.updated_at),
        message_count=record.message_count,
        active_stream_id=record.running_stream,
        pending_pause_id=record.pause_id,
    )


def _message_view(record: MessageRecord) -> MessageView:
    position, message = record.entry
    return MessageView(
        position=position,
        message_id=record.message_id,
        turn_id=record.turn_id,
        role=message.role,
        content=message.content,
        tool_calls=tuple(call.public() for call in message.tool_calls),
        tool_call_id=message.tool_call_id,
        name=message.name,
        is_error=message.is_error,
        metadata=message.metadata or {},
        created_at=iso(record.created_at),
    )


def write_cursor(*parts: str) -> str:
    """Make the cursor of a page that is sorted by several parts."""
    return dumps(parts).hex()


def read_cursor(cursor: str) -> tuple[str, str]:
    """Read a cursor of a time and an id; MalformedError when it is none."""
    try:
        first, second = loads(bytes.fromhex(cursor))
        datetime.fromisoformat(first)
    except (ValueError, TypeError):
        raise _bad_cursor(cursor) from None
    return str(first), str(second)


def _bad_cursor(cursor: str) -> MalformedError:
    return MalformedError(f"The cursor {cursor[:60]!r} can't be read; send the next_cursor of the page before.")
