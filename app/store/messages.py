"""Messages: append-only rows whose order is their position."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Select, bindparam, func, insert, select, update

from app.domain.messages import NEVER_SENT, Message
from app.store.database import Connection
from app.store.tables import messages

_row = messages.c
# Statements of every turn are made once: making one anew costs more than running it.
_NEWEST: Final = select(func.coalesce(func.max(_row.position), 0)).where(_row.conversation == bindparam("of"))
_APPEND: Final = insert(messages)
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
    if not new:
        return
    position = await connection.scalar(_NEWEST, {"of": conversation}) or 0
    rows = [
        {
            "conversation": conversation,
            "position": position + offset,
            "message_id": entry.message_id,
            "turn_id": entry.turn_id,
            "role": entry.message.role,
            "content": entry.message.content,
            "tool_calls": [call.to_json() for call in entry.message.tool_calls] or None,
            "tool_call_id": entry.message.tool_call_id,
            "name": entry.message.name,
            "is_error": entry.message.is_error,
            "metadata": dict(entry.message.metadata) if entry.message.metadata else None,
        }
        for offset, entry in enumerate(new, start=1)
    ]
    await connection.execute(_APPEND, rows)


async def leave_out(connection: Connection, conversation: UUID, turn_id: str) -> None:
    """Leave a turn's messages out of what is sent from now on; they stay readable."""
    await connection.execute(
        update(messages).where(_row.conversation == conversation, _row.turn_id == turn_id).values(not_sent=True)
    )


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """A message as it is stored."""

    position: int
    message_id: str
    turn_id: str | None
    role: str
    content: Any
    tool_calls: Any
    tool_call_id: str | None
    name: str | None
    is_error: bool
    metadata: Any
    created_at: Any

    def message(self) -> Message:
        """Give the message itself."""
        return Message.from_json(
            {
                "role": self.role,
                "content": self.content,
                "tool_calls": self.tool_calls,
                "tool_call_id": self.tool_call_id,
                "name": self.name,
                "is_error": self.is_error,
                "metadata": self.metadata,
            }
        )


_COLUMNS = (
    _row.position,
    _row.message_id,
    _row.turn_id,
    _row.role,
    _row.content,
    _row.tool_calls,
    _row.tool_call_id,
    _row.name,
    _row.is_error,
    _row.metadata,
    _row.created_at,
)


async def page(
    connection: Connection, conversation: UUID, *, after: int | None, limit: int, descending: bool
) -> list[MessageRecord]:
    """Give messages in order of position, from behind `after` on."""
    query = select(*_COLUMNS).where(_row.conversation == conversation)
    if after is not None:
        query = query.where(_row.position < after if descending else _row.position > after)
    order = _row.position.desc() if descending else _row.position.asc()
    rows = await connection.execute(query.order_by(order).limit(limit))
    return [MessageRecord(*row) for row in rows]


def _sendable(conversation: UUID, after: int, before: int | None) -> Select[Any]:
    """Ask for what may be told to a model: no errors, no thoughts, nothing of a turn that was rolled back."""
    query = select(*_COLUMNS).where(_row.conversation == conversation, _row.position > after)
    query = query.where(_row.role.not_in(NEVER_SENT), ~_row.not_sent)
    return query if before is None else query.where(_row.position < before)


async def oldest(
    connection: Connection, conversation: UUID, *, after: int = 0, before: int | None = None, limit: int | None = None
) -> list[MessageRecord]:
    """Give the first messages between two positions that may be sent; a round at the limit's edge is whole."""
    query = _sendable(conversation, after, before).order_by(_row.position)
    found = [MessageRecord(*row) for row in await connection.execute(query.limit(limit))]
    while limit and len(found) >= limit:
        following = _sendable(conversation, found[-1].position, before).order_by(_row.position).limit(EDGE)
        rows = [MessageRecord(*row) for row in await connection.execute(following)]
        answers = list(takewhile(lambda record: record.role == "tool", rows))
        found += answers
        if len(answers) < EDGE:
            break
    return found


async def newest(connection: Connection, conversation: UUID, *, after: int = 0, limit: int) -> list[MessageRecord]:
    """Give the last messages behind a position that may be sent, in order; a round at the limit's edge is whole."""
    query = _sendable(conversation, after, None).order_by(_row.position.desc())
    found = [MessageRecord(*row) for row in await connection.execute(query.limit(limit))]
    while len(found) >= limit and found[-1].role == "tool":
        earlier = _sendable(conversation, after, found[-1].position).order_by(_row.position.desc()).limit(EDGE)
        rows = [MessageRecord(*row) for row in await connection.execute(earlier)]
        if not rows:
            break
        answers = list(takewhile(lambda record: record.role == "tool", rows))
        found += rows[: len(answers) + 1]
    return found[::-1]


async def last_summary(connection: Connection, conversation: UUID) -> list[MessageRecord]:
    """Give the newest message that is a summary, if there is one."""
    # Written into the statement: with a parameter the index of summaries could not be used by a plan that is kept.
    is_summary = _row.role == bindparam("role", "summary", literal_execute=True)
    query = _sendable(conversation, 0, None).where(is_summary).order_by(_row.position.desc()).limit(1)
    return [MessageRecord(*row) for row in await connection.execute(query)]
