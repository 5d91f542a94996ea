"""The replay log in Postgres: groups of encoded frames, written by all streams of a process in one statement."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, Protocol
from uuid import UUID

from sqlalchemy import func, or_, select, tuple_, update

from app.domain.frozen import dataclass
from app.domain.views import Cursor
from app.store.database import Connection, Database
from app.store.sql import Statement
from app.store.tables import stream_events

FLUSH_SECONDS: Final = 5.0
"""Longest wait for one statement of the log; its outcome is unknown then, and the same batch is written again."""


class StoredBatch(Protocol):
    """What a batch of frames must tell."""

    @property
    def conversation(self) -> UUID: ...
    @property
    def stream_id(self) -> str: ...
    @property
    def fence(self) -> int: ...
    @property
    def first_n(self) -> int: ...
    @property
    def last_n(self) -> int: ...
    @property
    def frames(self) -> bytes: ...


class Flushed(Enum):
    """What became of a batch. SKIPPED: its row was locked, try again. LOST: its fence is gone."""

    WRITTEN = "written"
    SKIPPED = "skipped"
    LOST = "lost"


_FLUSH: Final = """
WITH input AS (
    SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::int[], $5::int[], $6::bytea[])
        AS t(conversation, stream_id, fence, first_n, last_n, frames)
), held AS (
    SELECT id, fence FROM conversations WHERE id IN (SELECT conversation FROM input)
    ORDER BY id FOR SHARE SKIP LOCKED
), written AS (
    INSERT INTO stream_events (conversation, stream_id, fence, first_n, last_n, frames)
    SELECT input.conversation, input.stream_id, input.fence, input.first_n, input.last_n, input.frames
    FROM input JOIN held ON held.id = input.conversation AND held.fence = input.fence
    ON CONFLICT DO NOTHING
)
SELECT id, fence FROM held
"""


def inserting(condition: str = "true") -> str:
    """Give the statement that writes batches of one conversation, which the transaction holds, if the condition holds.

    A batch that is there already stays as it is.
    """
    return f"""
INSERT INTO stream_events (conversation, stream_id, fence, first_n, last_n, frames)
SELECT :conversation::uuid, batch.* FROM unnest(
    :batch_streams::text[], :batch_fences::bigint[], :first_ns::int[], :last_ns::int[], :frames::bytea[]
) AS batch
WHERE {condition}
ON CONFLICT DO NOTHING
"""  # noqa: S608 - put together of constants


_INSERT: Final = Statement(inserting())
_EXIST: Final = "SELECT id FROM conversations WHERE id = ANY($1::uuid[])"


async def flush(database: Database, batches: Sequence[StoredBatch]) -> list[Flushed]:
    """Write the batches in one statement and tell of each what became of it, in their order.

    The conversations' rows are locked for share in id order, which shuts out a zombie's frame behind a reader's
    cursor; a row that another transaction holds is skipped.
    """
    async with database.driver() as connection:
        rows = await connection.fetch(
            _FLUSH,
            [batch.conversation for batch in batches],
            [batch.stream_id for batch in batches],
            [batch.fence for batch in batches],
            [batch.first_n for batch in batches],
            [batch.last_n for batch in batches],
            [batch.frames for batch in batches],
            timeout=FLUSH_SECONDS,
        )
        fences: dict[UUID, int] = {row["id"]: row["fence"] for row in rows}
        absent = [batch.conversation for batch in batches if batch.conversation not in fences]
        existing = {row["id"] for row in await connection.fetch(_EXIST, absent)} if absent else set()
    return [_verdict(batch, fences, existing) for batch in batches]


def _verdict(batch: StoredBatch, fences: dict[UUID, int], existing: set[UUID]) -> Flushed:
    fence = fences.get(batch.conversation)
    if fence is None:
        return Flushed.SKIPPED if batch.conversation in existing else Flushed.LOST
    return Flushed.WRITTEN if fence == batch.fence else Flushed.LOST


async def insert_batches(connection: Connection, batches: Sequence[StoredBatch]) -> None:
    """Write batches of one conversation, which the transaction holds; one that is there already stays as it is."""
    if batches:
        await _INSERT.rows(connection, {"conversation": batches[0].conversation, **values(batches)})


def values(batches: Sequence[StoredBatch]) -> dict[str, Any]:
    """Give the values of `inserting` for these batches."""
    return {
        "batch_streams": [batch.stream_id for batch in batches],
        "batch_fences": [batch.fence for batch in batches],
        "first_ns": [batch.first_n for batch in batches],
        "last_ns": [batch.last_n for batch in batches],
        "frames": [batch.frames for batch in batches],
    }


async def rewrite(
    connection: Connection, conversation: UUID, stream_id: str, fence: int, change: Callable[[bytes], bytes]
) -> None:
    """Change one operation's stored frames, inside the transaction that ends it; their numbers stay as they are."""
    row = stream_events.c
    mine = (row.conversation == conversation, row.stream_id == stream_id, row.fence == fence)
    found = (await connection.execute(select(row.first_n, row.frames).where(*mine))).all()
    for first_n, frames in found:
        changed = change(frames)
        if changed != frames:
            await connection.execute(update(stream_events).where(*mine, row.first_n == first_n).values(frames=changed))


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored batch as a reader gets it."""

    fence: int
    first_n: int
    last_n: int
    frames: bytes


async def read_after(
    connection: Connection,
    conversation: UUID,
    stream_id: str,
    cursor: Cursor,
    *,
    limit: int,
    most_bytes: int | None = None,
) -> list[Stored]:
    """Give the next batches that hold an event behind the cursor, in order of (fence, n).

    At most `limit` of them, and none behind the first that goes beyond `most_bytes`.
    """
    events = stream_events.c
    mine = (events.conversation == conversation, events.stream_id == stream_id)
    # The batch that the cursor stands in may hold more behind it. Starting there keeps a look at a long stream short.
    standing = select(func.max(events.first_n)).where(*mine, events.fence == cursor.fence, events.first_n <= cursor.n)
    start = func.coalesce(standing.scalar_subquery(), 0)
    order = (events.fence, events.first_n)
    size = func.octet_length(events.frames)
    before = (func.sum(size).over(order_by=order) - size).label("before")
    found = (
        select(events.fence, events.first_n, events.last_n, events.frames, before)
        .where(*mine, tuple_(*order) >= tuple_(cursor.fence, start))
        .where(or_(events.fence > cursor.fence, events.last_n > cursor.n))
        .order_by(*order)
        .limit(limit)
        .subquery()
    )
    query = select(found.c.fence, found.c.first_n, found.c.last_n, found.c.frames)
    if most_bytes is not None:
        query = query.where(found.c.before < most_bytes)
    rows = await connection.execute(query.order_by(found.c.fence, found.c.first_n))
    return [Stored(row.fence, row.first_n, row.last_n, row.frames) for row in rows]
