"""Messages: append-only rows whose order is their position."""

from collections.abc import Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Select, bindparam, func, select, update

from app.domain.frozen import dataclass
from app.domain.messages import NEVER_SENT, Entry, Message, ToolCall
from app.store.database import Connection
from app.store.sql import Statement, as_json
from app.store.tables import messages

_row = messages.c


def appending(condition: str = "true") -> str:
    """Give the statement that appends messages in order, if the condition holds.

    The transaction holds the conversation, so positions can't collide.
    """
    return f"""
INSERT INTO messages (
    conversation, position, message_id, turn_id, role, content, tool_calls, tool_call_id, name, is_error, metadata
)
SELECT :conversation::uuid, before.position + new.n, new.message_id, new.turn_id, new.role, new.content,
    new.tool_calls, new.tool_call_id, new.name, new.is_error, new.metadata
FROM (SELECT coalesce(max(position), 0) AS position FROM messages WHERE conversation = :conversation::uuid) AS before,
    unnest(
        :message_ids::text[], :message_turns::text[], :roles::text[], :contents::json[], :tool_calls::json[],
        :tool_call_ids::text[], :names::text[], :are_errors::boolean[], :message_metadata::json[]
    ) WITH ORDINALITY
    AS new(message_id, turn_id, role, content, tool_calls, tool_call_id, name, is_error, metadata, n)
WHERE {condition}
"""  # noqa: S608 - put together of constants


_APPEND: Final = Statement(appending())
EDGE: Final = 32
"""How many rows are read at a time to make a round whole that a limit cuts."""


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to append, with its id and the turn it belongs to."""

    message_id: str
    message: Message
    turn_id: str | None = None


async def append(connection: Connection, conversation: UUID, new: Sequence[NewMessage]) -> None:
    """Append in order. The transaction holds the conversation, so positions can't collide."""
    if new:
        await _APPEND.rows(connection, {"conversation": conversation, **values(new)})


def values(new: Sequence[NewMessage]) -> dict[str, Any]:
    """Give the values of `appending` for these messages."""
    told = [entry.message for entry in new]
    return {
        "message_ids": [entry.message_id for entry in new],
        "message_turns": [entry.turn_id for entry in new],
        "roles": [message.role for message in told],
        "contents": [as_json(message.content) for message in told],
        "tool_calls": [as_json([call.to_json() for call in message.tool_calls] or None) for message in told],
        "tool_call_ids": [message.tool_call_id for message in told],
        "names": [message.name for message in told],
        "are_errors": [message.is_error for message in told],
        "message_metadata": [as_json(dict(message.metadata) if message.metadata else None) for message in told],
    }


async def leave_out(connection: Connection, conversation: UUID, turn_ids: Sequence[str]) -> None:
    """Leave the messages of some turns out of what is sent from now on; they stay readable."""
    await connection.execute(
        update(messages).where(_row.conversation == conversation, _row.turn_id.in_(turn_ids)).values(not_sent=True)
    )


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """A message with all that is stored of it."""

    entry: Entry
    message_id: str
    turn_id: str | None
    created_at: datetime


TOLD: Final = ("position", "role", "content", "tool_calls", "tool_call_id", "name", "is_error", "metadata")
"""The columns that `entry_of` reads, in their order."""

_COLUMNS: Final = tuple(_row[name] for name in TOLD)


def entry_of(row: Sequence[Any]) -> Entry:
    """Give the message that a row tells of."""
    position, role, content, calls, call_id, name, is_error, metadata = row
    told = tuple(map(ToolCall.from_json, calls)) if calls else ()
    return Entry(position, Message(role, content, told, call_id, name, is_error, metadata))


async def page(
    connection: Connection, conversation: UUID, *, after: int | None, limit: int, descending: bool
) -> list[MessageRecord]:
    """Give messages in order of position, from behind `after` on."""
    query = select(_row.message_id, _row.turn_id, _row.created_at, *_COLUMNS).where(_row.conversation == conversation)
    if after is not None:
        query = query.where(_row.position < after if descending else _row.position > after)
    order = _row.position.desc() if descending else _row.position.asc()
    rows = await connection.execute(query.order_by(order).limit(limit))
    return [MessageRecord(entry_of(row[3:]), *row[:3]) for row in rows]


def _sendable(conversation: UUID, after: int, before: int | None) -> Select[Any]:
    """Ask for what may be told to a model: no errors, no thoughts, nothing of a turn that was rolled back."""
    query = select(*_COLUMNS).where(_row.conversation == conversation, _row.position > after)
    query = query.where(_row.role.not_in(NEVER_SENT), ~_row.not_sent)
    return query if before is None else query.where(_row.position < before)


async def oldest(
    connection: Connection,
    conversation: UUID,
    *,
    after: int = 0,
    before: int | None = None,
    limit: int | None = None,
    and_next: bool = False,
) -> list[Entry]:
    """Give the first messages between two positions that may be sent; a round at the limit's edge is whole.

    With `and_next` the message right behind those is given as well, where they end with a round or it is a summary.
    """
    query = _sendable(conversation, after, before).order_by(_row.position)
    found = [entry_of(row) for row in await connection.execute(query.limit(None if limit is None else limit + 1))]
    return await whole_at_end(connection, conversation, found, limit=limit, before=before, and_next=and_next)


async def whole_at_end(
    connection: Connection,
    conversation: UUID,
    found: list[Entry],
    *,
    limit: int | None,
    before: int | None = None,
    and_next: bool = False,
) -> list[Entry]:
    """Give `limit` of the messages and the rest of their last round, and what `oldest` gives behind them.

    `found` has one more than the limit, to tell if there is any.
    """
    if limit is None or len(found) <= limit:
        return found
    following, found = found[limit:], found[:limit]
    while following:
        answers = list(takewhile(lambda entry: entry.message.role == "tool", following)) if found else []
        found += answers
        if len(answers) < len(following):
            behind = following[len(answers)]
            tells = behind.message.role == "summary" or (bool(found) and found[-1].message.role == "tool")
            return [*found, behind] if and_next and tells else found
        query = _sendable(conversation, found[-1].position, before).order_by(_row.position).limit(EDGE)
        following = [entry_of(row) for row in await connection.execute(query)]
    return found


async def newest(connection: Connection, conversation: UUID, *, after: int = 0, limit: int) -> list[Entry]:
    """Give the last messages behind a position that may be sent, in order; a round at the limit's edge is whole."""
    query = _sendable(conversation, after, None).order_by(_row.position.desc())
    found = [entry_of(row) for row in await connection.execute(query.limit(limit))]
    return await whole_at_start(connection, conversation, found[::-1], after=after, limit=limit)


async def whole_at_start(
    connection: Connection, conversation: UUID, found: list[Entry], *, after: int = 0, limit: int
) -> list[Entry]:
    """Give the messages with what is missing of their first round; fewer than `limit` are all that there are."""
    while found and len(found) >= limit and found[0].message.role == "tool":
        query = _sendable(conversation, after, found[0].position).order_by(_row.position.desc()).limit(EDGE)
        earlier = [entry_of(row) for row in await connection.execute(query)]
        if not earlier:
            break
        answers = list(takewhile(lambda entry: entry.message.role == "tool", earlier))
        found = [*earlier[: len(answers) + 1][::-1], *found]
    return found


async def last_summary(connection: Connection, conversation: UUID) -> list[Entry]:
    """Give the newest message that is a summary, if there is one."""
    # Written into the statement: with a parameter the index of summaries could not be used by a plan that is kept.
    is_summary = _row.role == bindparam("role", "summary", literal_execute=True)
    query = _sendable(conversation, 0, None).where(is_summary).order_by(_row.position.desc()).limit(1)
    return [entry_of(row) for row in await connection.execute(query)]


async def of_turn(connection: Connection, conversation: UUID, turn_id: str) -> list[Entry]:
    """Give the messages of a turn that may be sent, in order."""
    query = _sendable(conversation, 0, None).where(_row.turn_id == turn_id).order_by(_row.position)
    return [entry_of(row) for row in await connection.execute(query)]


async def count_of_user(connection: Connection, conversation: UUID) -> int:
    """Give how many messages of its user the conversation has."""
    counted = select(func.count()).where(_row.conversation == conversation, _row.role == "user")
    return int(await connection.scalar(counted) or 0)
