"""Streams: their status, how each of their operations ended, and what a client may ask of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, case, func, insert, select, update

from app.domain.turn import StreamStatus
from app.domain.views import Cursor
from app.store.database import Connection
from app.store.tables import conversations, streams


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """A stream as it is stored, with its owner.

    `fences` are all that the stream has had; `ends` tells of each operation that ended its fence and last number.
    `expired` tells that the events are past their retention.
    """

    conversation: UUID
    stream_id: str
    turn_id: str
    persona_id: str
    status: StreamStatus
    close_reason: str | None
    fence: int
    fences: frozenset[int]
    ends: tuple[Mapping[str, Any], ...]
    pause_id: str | None
    usage: Mapping[str, Any] | None
    final_response: Mapping[str, Any] | None
    error: Mapping[str, Any] | None
    continued_on: str | None
    expired: bool
    organization_id: str
    user_id: str
    conversation_id: str

    @property
    def last_end(self) -> Cursor | None:
        """The place of the newest `end` frame."""
        return Cursor(self.ends[-1]["fence"], self.ends[-1]["last"]) if self.ends else None

    def finished(self, cursor: Cursor) -> bool:
        """Tell whether the cursor stands at (or behind) the last `end`, and no operation runs."""
        last = self.last_end
        return self.status is not StreamStatus.RUNNING and last is not None and cursor >= last


async def find_stream(connection: Connection, conversation: UUID, stream_id: str) -> StreamRecord | None:
    """Give the stream, or None."""
    row = streams.c
    owner = conversations.c
    query = (
        select(
            row.conversation,
            row.stream_id,
            row.turn_id,
            row.persona_id,
            row.status,
            row.close_reason,
            row.fence,
            row.fences,
            row.ends,
            row.pause_id,
            row.usage,
            row.final_response,
            row.error,
            row.continued_on,
            row.expired,
            owner.organization_id,
            owner.user_id,
            owner.conversation_id,
        )
        .join(conversations, owner.id == row.conversation)
        .where(row.conversation == conversation, row.stream_id == stream_id)
    )
    found = (await connection.execute(query)).first()
    if found is None:
        return None
    values = found._asdict()
    values["status"] = StreamStatus(values["status"])
    values["ends"] = tuple(values["ends"])
    values["fences"] = frozenset(values["fences"])
    return StreamRecord(**values)


async def names(connection: Connection, conversation: UUID) -> list[str]:
    """Give the ids of a conversation's streams."""
    return list(await connection.scalars(select(streams.c.stream_id).where(streams.c.conversation == conversation)))


async def open_stream(
    connection: Connection, conversation: UUID, stream_id: str, *, turn_id: str, persona_id: str, fence: int
) -> None:
    """Store a new stream on which an operation runs."""
    values = {
        "conversation": conversation,
        "stream_id": stream_id,
        "turn_id": turn_id,
        "persona_id": persona_id,
        "status": StreamStatus.RUNNING.value,
        "fence": fence,
        "fences": [fence],
    }
    await connection.execute(insert(streams).values(**values))


async def run_again(connection: Connection, conversation: UUID, stream_id: str, fence: int) -> None:
    """Say that a further operation runs on a paused stream."""
    await connection.execute(
        update(streams)
        .where(streams.c.conversation == conversation, streams.c.stream_id == stream_id)
        .values(status=StreamStatus.RUNNING.value, fence=fence, fences=_with(fence), pause_id=None)
    )


def _with(fence: int) -> ColumnElement[Any]:
    """Give the stream's fences with this one: a stream that was taken over has several of one operation."""
    known = streams.c.fences
    return case((func.array_position(known, fence).is_not(None), known), else_=func.array_append(known, fence))


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """How an operation left its stream. `last` is the number of its `end` frame."""

    fence: int
    last: int
    status: StreamStatus
    close_reason: str | None = None
    pause_id: str | None = None
    usage: Mapping[str, Any] | None = None
    final_response: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    continued_on: str | None = None


async def end_operation(connection: Connection, conversation: UUID, stream_id: str, end: StreamEnd) -> None:
    """Write an operation's end on its stream. What is None leaves the column as it is, the pause excepted."""
    row = streams.c
    where = (row.conversation == conversation, row.stream_id == stream_id)
    ends = await connection.scalar(select(row.ends).where(*where)) or []
    changes: dict[str, Any] = {
        "status": end.status.value,
        "fence": end.fence,
        "fences": _with(end.fence),
        "pause_id": end.pause_id,
        "ends": [*ends, {"fence": end.fence, "last": end.last, "status": end.status.value}],
    }
    for name in ("close_reason", "usage", "final_response", "error", "continued_on"):
        if getattr(end, name) is not None:
            changes[name] = getattr(end, name)
    if end.status.closed:
        changes["ended_at"] = func.now()
    await connection.execute(update(streams).where(*where).values(**changes))
