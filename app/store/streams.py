"""Streams: their status, how each of their operations ended, and what a client may ask of them."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, case, func, select, update

from app.domain.frozen import dataclass
from app.domain.jsontext import dumps_text
from app.domain.turn import StreamStatus
from app.domain.views import Cursor
from app.store.database import Connection
from app.store.sql import Statement, as_json
from app.store.tables import streams


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

    def continuation_of(self, pause_id: str | None) -> Cursor | None:
        """Give the first place behind a pause (without a name, the last one); None when nothing has continued it."""
        paused = StreamStatus.PAUSED.value
        for end in reversed(self.ends):
            if end["status"] == paused and pause_id in {None, end.get("pause_id")}:
                later = [fence for fence in self.fences if fence > end["fence"]]
                return Cursor(min(later), 1) if later else None
        return None

    def finished(self, cursor: Cursor) -> bool:
        """Tell whether the cursor stands at (or behind) the last `end`, and no operation runs."""
        last = self.last_end
        return self.status is not StreamStatus.RUNNING and last is not None and cursor >= last


_FIND: Final = Statement("""
SELECT stream.conversation, stream.stream_id, stream.turn_id, stream.persona_id, stream.status, stream.close_reason,
    stream.fence, stream.fences, stream.ends, stream.pause_id, stream.usage, stream.final_response, stream.error,
    stream.continued_on, stream.expired, owner.organization_id, owner.user_id, owner.conversation_id
FROM streams stream JOIN conversations owner ON owner.id = stream.conversation
WHERE stream.conversation = :conversation::uuid AND stream.stream_id = :stream_id::text
""")


async def find_stream(connection: Connection, conversation: UUID, stream_id: str) -> StreamRecord | None:
    """Give the stream, or None."""
    found = await _FIND.first(connection, {"conversation": conversation, "stream_id": stream_id})
    if found is None:
        return None
    values = dict(found)
    values["status"] = StreamStatus(values["status"])
    values["ends"] = tuple(values["ends"])
    values["fences"] = frozenset(values["fences"])
    return StreamRecord(**values)


async def names(connection: Connection, conversation: UUID) -> list[str]:
    """Give the ids of a conversation's streams."""
    return list(await connection.scalars(select(streams.c.stream_id).where(streams.c.conversation == conversation)))


def opening(fence: str = ":fence::bigint", condition: str = "true") -> str:
    """Give the statement that stores the stream on which an operation runs, if the condition holds.

    It is a new one or one that has paused; an ephemeral one keeps its end only.
    """
    return f"""
INSERT INTO streams (conversation, stream_id, turn_id, persona_id, status, fence, fences, ephemeral)
SELECT :conversation::uuid, :stream_id::text, :turn_id::text, :persona_id::text, 'running', {fence},
    ARRAY[{fence}], :ephemeral::boolean
WHERE {condition}
ON CONFLICT (conversation, stream_id) DO UPDATE SET
    status = excluded.status, fence = excluded.fence, fences = streams.fences || {fence}, pause_id = NULL
"""


def ending(condition: str = "true") -> str:
    """Give the statement that writes an operation's end on its stream, if the condition holds."""
    return f"""
UPDATE streams SET
    status = :status::text, fence = :fence::bigint, pause_id = :pause_id::text,
    fences = CASE WHEN :fence::bigint = ANY (fences) THEN fences ELSE fences || :fence::bigint END,
    ends = (ends::jsonb || :end::jsonb)::json,
    close_reason = coalesce(:close_reason::text, close_reason),
    usage = coalesce(:usage::json, usage),
    final_response = coalesce(:final_response::json, final_response),
    error = coalesce(:error::json, error),
    continued_on = coalesce(:continued_on::text, continued_on),
    ended_at = CASE WHEN :closed::boolean THEN now() ELSE ended_at END
WHERE conversation = :conversation::uuid AND stream_id = :stream_id::text AND {condition}
"""  # noqa: S608 - put together of constants


_END: Final = Statement(ending())


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
    await _END.rows(connection, {"conversation": conversation, "stream_id": stream_id, **end_values(end)})


def end_values(end: StreamEnd) -> dict[str, Any]:
    """Give the values of `ending`."""
    paused = {"pause_id": end.pause_id} if end.pause_id is not None else {}
    return {
        "fence": end.fence,
        "status": end.status.value,
        "close_reason": end.close_reason,
        "pause_id": end.pause_id,
        "end": dumps_text([{"fence": end.fence, "last": end.last, "status": end.status.value, **paused}]),
        "usage": as_json(end.usage),
        "final_response": as_json(end.final_response),
        "error": as_json(end.error),
        "continued_on": end.continued_on,
        "closed": end.status.closed,
    }
