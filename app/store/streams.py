"""Streams: their status, how each of their operations ended, and what a client may ask of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    ColumnElement,
    Text,
    Update,
    bindparam,
    case,
    cast,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB

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

    def first_of(self, fence: int) -> int:
        """Give the fence under which an operation began that has this one now: a takeover gives it another."""
        before = max((end["fence"] for end in self.ends if end["fence"] < fence), default=0)
        return min((known for known in self.fences if before < known <= fence), default=fence)

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


_OPEN: Final = insert(streams)


async def open_stream(
    connection: Connection,
    conversation: UUID,
    stream_id: str,
    *,
    turn_id: str,
    persona_id: str,
    fence: int,
    ephemeral: bool = False,
) -> None:
    """Store a new stream on which an operation runs; of an ephemeral one nothing but its end is kept."""
    values = {
        "conversation": conversation,
        "stream_id": stream_id,
        "turn_id": turn_id,
        "persona_id": persona_id,
        "status": StreamStatus.RUNNING.value,
        "fence": fence,
        "fences": [fence],
        "ephemeral": ephemeral,
    }
    await connection.execute(_OPEN, values)


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
    ended = {"fence": end.fence, "last": end.last, "status": end.status.value}
    given = {
        "of": conversation,
        "this": stream_id,
        "under": end.fence,
        "how": end.status.value,
        "why": end.close_reason,
        "pause": end.pause_id,
        "end": [ended],
        "used": end.usage,
        "said": end.final_response,
        "failed": end.error,
        "further": end.continued_on,
        "over": end.status.closed,
    }
    await connection.execute(_END, given)


def _ending() -> Update:
    """Make the statement that writes an operation's end."""
    row, fence = streams.c, bindparam("under", type_=BigInteger)
    ends = cast(cast(row.ends, JSONB).op("||")(cast(bindparam("end", type_=JSON), JSONB)), JSON)
    known = func.array_position(row.fences, fence).is_not(None)
    fences = case((known, row.fences), else_=func.array_append(row.fences, fence))
    json = JSON(none_as_null=True)
    return (
        update(streams)
        .where(row.conversation == bindparam("of"), row.stream_id == bindparam("this"))
        .values(
            status=bindparam("how"),
            fence=fence,
            fences=fences,
            pause_id=bindparam("pause"),
            ends=ends,
            close_reason=func.coalesce(bindparam("why", type_=Text), row.close_reason),
            usage=func.coalesce(bindparam("used", type_=json), row.usage),
            final_response=func.coalesce(bindparam("said", type_=json), row.final_response),
            error=func.coalesce(bindparam("failed", type_=json), row.error),
            continued_on=func.coalesce(bindparam("further", type_=Text), row.continued_on),
            ended_at=case((bindparam("over", type_=Boolean), func.now()), else_=row.ended_at),
        )
    )


_END: Final = _ending()
