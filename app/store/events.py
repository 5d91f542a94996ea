"""The replay log in Postgres: groups of encoded frames, written by all streams of a process in one statement."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol
from uuid import UUID

from sqlalchemy import select, tuple_
from sqlalchemy.dialects.postgresql import insert

from app.domain.views import Cursor
from app.store.database import Connection, Database
from app.store.tables import stream_events


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
    """Write batches inside a transaction that holds the conversation; a batch that is there already stays as it is."""
    if not batches:
        return
    rows = [
        {
            "conversation": batch.conversation,
            "stream_id": batch.stream_id,
            "fence": batch.fence,
            "first_n": batch.first_n,
            "last_n": batch.last_n,
            "frames": batch.frames,
        }
        for batch in batches
    ]
    await connection.execute(insert(stream_events).on_conflict_do_nothing(), rows)


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored batch as a reader gets it."""

    fence: int
    first_n: int
    last_n: int
    frames: bytes


async def read_after(
    connection: Connection, conversation: UUID, stream_id: str, cursor: Cursor, limit: int
) -> list[Stored]:
    """Give the next batches that hold an event behind the cursor, in order of (fence, n)."""
    events = stream_events.c
    query = (
        select(events.fence, events.first_n, events.last_n, events.frames)
        .where(events.conversation == conversation, events.stream_id == stream_id)
        .where(tuple_(events.fence, events.last_n) > (cursor.fence, cursor.n))
        .order_by(events.fence, events.first_n)
        .limit(limit)
    )
    rows = await connection.execute(query)
    return [Stored(row.fence, row.first_n, row.last_n, row.frames) for row in rows]
