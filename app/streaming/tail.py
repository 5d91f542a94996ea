"""Reading a stream: what is stored, then what is running, until an operation's end.

A reader holds a cursor and nothing else. It reads the ring of an operation that runs in this process, and the
database for everything else: what is old, what runs elsewhere, what was taken over.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final
from uuid import UUID

from app.domain.errors import MalformedError
from app.domain.turn import StreamStatus
from app.domain.views import Cursor
from app.store.database import Database
from app.store.events import Stored, read_after
from app.store.streams import StreamRecord, find_stream
from app.streaming.frames import OPENING, PING, cursor_of, is_end, split
from app.streaming.ring import Ring, Rings
from app.streaming.wakeups import Wakeups

BATCHES: Final = 200
POLL_SECONDS: Final = 1.0


class CutError(Exception):
    """The response can't be finished: the connection must be reset, so that nobody takes it for complete."""


class Tail:
    """Opens readers. Heartbeats are comments after `heartbeat` seconds of silence."""

    def __init__(self, database: Database, rings: Rings, wakeups: Wakeups, *, heartbeat: float) -> None:
        """Keep what readers share."""
        self._database = database
        self._rings = rings
        self._wakeups = wakeups
        self._heartbeat = heartbeat

    async def operation(self, conversation: UUID, stream_id: str, fence: int) -> AsyncIterator[bytes]:
        """Give one operation's frames, from its first to its `end` (or that of whoever took it over)."""
        async for frames in self._read(conversation, stream_id, Cursor(fence, 0), until=fence, follow=False):
            yield frames

    async def open(self, record: StreamRecord, cursor: Cursor | None, *, follow: bool) -> AsyncIterator[bytes] | None:
        """Give what follows the cursor, up to the stream's last `end`; None when nothing follows and nothing will.

        With `follow` the reader stays open over a held pause. Raises MalformedError for a fence that the stream never
        had.
        """
        if cursor is not None and cursor.fence and cursor.fence not in record.fences:
            message = f"No operation of this stream had the fence {cursor.fence}; the event id is of another stream."
            raise MalformedError(message)
        start = cursor or Cursor(0, 0)
        if record.finished(start) and not (follow and not record.status.closed):
            return None
        return self._replay(record, start, follow=follow)

    async def _replay(self, record: StreamRecord, start: Cursor, *, follow: bool) -> AsyncIterator[bytes]:
        yield OPENING
        async for frames in self._read(record.conversation, record.stream_id, start, until=None, follow=follow):
            yield frames

    async def _read(
        self, conversation: UUID, stream_id: str, cursor: Cursor, *, until: int | None, follow: bool
    ) -> AsyncIterator[bytes]:
        silence = 0.0
        while True:
            ring = self._rings.find(stream_id)
            frames = self._from_ring(ring, cursor)
            if frames is None:
                record, stored = await self._from_database(conversation, stream_id, cursor)
                frames = [frame for batch in stored for frame in _behind(batch, cursor)]
                if not frames and record is not None and self._over(record, cursor, until=until, follow=follow):
                    return
                ring = self._next_ring(ring, cursor, caught_up=not frames)
                if ring is not None and not frames:
                    cursor = Cursor(ring.fence, 0)
                    continue
            if frames:
                silence = 0.0
                stop = _stop(frames, until)
                yield b"".join(frames[:stop])
                if stop is not None:
                    return
                cursor = cursor_of(frames[-1])
            else:
                waited = await self._wait(ring, stream_id, cursor, self._heartbeat - silence)
                silence += waited
                if silence >= self._heartbeat:
                    silence = 0.0
                    yield PING

    def _from_ring(self, ring: Ring | None, cursor: Cursor) -> list[bytes] | None:
        """Give the ring's frames behind the cursor; None when they must come from the database."""
        if ring is None or ring.lost or ring.fence != cursor.fence:
            return None
        frames = ring.after(cursor.n)
        return None if frames == [] and ring.closed else frames

    def _next_ring(self, ring: Ring | None, cursor: Cursor, *, caught_up: bool) -> Ring | None:
        """Give the ring to go on with, once all that older operations left has been read."""
        usable = ring is not None and not ring.lost and ring.fence > cursor.fence and caught_up
        return ring if usable else None

    async def _from_database(
        self, conversation: UUID, stream_id: str, cursor: Cursor
    ) -> tuple[StreamRecord | None, list[Stored]]:
        # The status is read first: what it calls ended has all its events behind it already.
        async with self._database.transaction() as connection:
            record = await find_stream(connection, conversation, stream_id)
            stored = await read_after(connection, conversation, stream_id, cursor, BATCHES)
        if record is None:
            raise CutError
        return record, stored

    def _over(self, record: StreamRecord, cursor: Cursor, *, until: int | None, follow: bool) -> bool:
        if until is None and follow and record.status is StreamStatus.PAUSED:
            return False
        return record.finished(cursor)

    async def _wait(self, ring: Ring | None, stream_id: str, cursor: Cursor, longest: float) -> float:
        """Wait until there may be more; give the seconds that count as silence."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        if ring is not None and not ring.lost and ring.fence == cursor.fence:
            try:
                async with asyncio.timeout(longest):
                    await ring.grown(cursor.n)
            except TimeoutError:
                return longest
        else:
            await self._wakeups.wait(stream_id, min(POLL_SECONDS, longest))
        return loop.time() - began


def _behind(batch: Stored, cursor: Cursor) -> list[bytes]:
    """Give a batch's frames that lie behind the cursor."""
    if batch.fence > cursor.fence or batch.first_n > cursor.n:
        return list(split(batch.frames))
    return [frame for frame in split(batch.frames) if cursor_of(frame) > cursor]


def _stop(frames: list[bytes], until: int | None) -> int | None:
    """Give how many frames to send when one of them ends the operation that is read; None when none does."""
    if until is None:
        return None
    for index, frame in enumerate(frames):
        if is_end(frame) and cursor_of(frame).fence >= until:
            return index + 1
    return None
