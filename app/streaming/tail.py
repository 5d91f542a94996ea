"""Reading a stream: what is stored, then what is running, until an operation's end.

A reader holds a cursor and nothing else. It reads the ring of an operation that runs in this process, and the
database for everything else: what is old, what runs elsewhere, what was taken over. While the database is away it
waits, and its heartbeats go on.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import closing, suppress
from time import perf_counter
from typing import Final
from uuid import UUID

from app.domain.errors import DatabaseError, MalformedError
from app.domain.frozen import dataclass
from app.domain.patience import Patience
from app.domain.turn import StreamStatus
from app.domain.views import Cursor
from app.store.database import Database
from app.store.events import Stored
from app.store.streams import StreamRecord
from app.streaming.frames import OPENING, PING, RETRY, cursor_of, end_status, is_end, split
from app.streaming.outlet import CutError, Outlet, Reader
from app.streaming.reads import Reads
from app.streaming.ring import PIECE_BYTES, Ring, Rings
from app.streaming.wakeups import Wakeups, Watch

POLL_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 0.0002
"""Frames that follow each other in less than this go out together: a write costs more than all the rest of a frame."""

LEAST_PATIENCE: Final = 1.0
"""A heartbeat comes early rather than break into a read of the database shortly before it is due."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """What a reader reads: one operation (up to the `end` of `until` or of whoever took it over), or a whole stream."""

    conversation: UUID
    stream_id: str
    until: int | None
    follow: bool

    def is_over(self, record: StreamRecord, cursor: Cursor) -> bool:
        """Tell whether nothing follows the cursor, and nothing will while the reader stays."""
        if self.until is None and self.follow and record.status is StreamStatus.PAUSED:
            return False
        return record.finished(cursor)

    def stop_in(self, frames: list[bytes]) -> int | None:
        """Give how many of the frames are to be sent when one of them is the last; None when none is."""
        for index, frame in enumerate(frames):
            if is_end(frame):
                closed = self.until is None and end_status(frame) is not StreamStatus.PAUSED
                if closed or (self.until is not None and cursor_of(frame).fence >= self.until):
                    return index + 1
        return None


_Found = tuple[list[bytes], Cursor, bool]
"""The frames behind a cursor; where to read on, in a younger ring perhaps; and whether it is all over."""


class Tail:
    """Opens readers. Heartbeats are comments after `heartbeat` seconds of silence."""

    def __init__(
        self, database: Database, rings: Rings, wakeups: Wakeups, *, heartbeat: float, may_send: Callable[[], bool]
    ) -> None:
        """`may_send` tells whether this process still holds what its rings say; if not, only what is stored is read."""
        self.reads = Reads(database)
        self._rings = rings
        self._wakeups = wakeups
        self._heartbeat = heartbeat
        self._may_send = may_send
        self._hinted = False
        self._cut = False

    def operation(self, conversation: UUID, stream_id: str, fence: int, after: Cursor | None = None) -> Reader:
        """Give one operation's frames, from its first (or a cursor) to its `end`, or that of whoever took it over."""
        scope = _Scope(conversation, stream_id, until=fence, follow=False)
        # Found now, since a quick operation is over before its reader begins.
        return self._reader(scope, after or Cursor(fence, 0), self._rings.find(stream_id))

    def open(self, record: StreamRecord, cursor: Cursor | None, *, follow: bool) -> Reader | None:
        """Give what follows the cursor, up to the stream's last `end`; None when nothing follows and nothing will.

        With `follow` the reader stays open over a held pause. Raises MalformedError for a fence that the stream never
        had.
        """
        if cursor is not None and cursor.fence and cursor.fence not in record.fences:
            message = f"No operation of this stream had the fence {cursor.fence}; the event id is of another stream."
            raise MalformedError(message)
        start = cursor or Cursor(0, 0)
        scope = _Scope(record.conversation, record.stream_id, until=None, follow=follow)
        return None if scope.is_over(record, start) else self._reader(scope, start, opens=True)

    def hint(self) -> None:
        """Tell all readers, now and from now on, how soon to come back once they are cut."""
        self._hinted = True
        self._nudge()

    def cut(self) -> None:
        """Cut all readers: this process serves no more."""
        self._cut = True
        self._nudge()

    def _nudge(self) -> None:
        for ring in self._rings.all():
            ring.nudge()
        self._wakeups.nudge()

    def _reader(self, scope: _Scope, start: Cursor, ring: Ring | None = None, *, opens: bool = False) -> Reader:
        outlet = Outlet()
        return Reader(self._read(scope, start, outlet, ring, opens=opens), outlet)

    async def _read(
        self, scope: _Scope, cursor: Cursor, outlet: Outlet, ring: Ring | None, *, opens: bool
    ) -> AsyncGenerator[bytes, None]:
        early = min(LEAST_PATIENCE, self._heartbeat / 2)
        hinted = False
        with self._wakeups.watch(scope.stream_id) as watch, closing(Patience()) as patience:
            passing = _Passing(outlet, self._may_send, patience, self._heartbeat)
            if opens:
                yield OPENING
            while True:
                if self._hinted and not hinted:
                    hinted = True
                    yield RETRY
                seen = watch.changes
                ring = self._ring_at(ring, scope.stream_id, cursor)
                found = self._running(ring, cursor) or await self._stored(scope, cursor, passing.seconds_left)
                frames, place, over = found
                if frames:
                    stop = scope.stop_in(frames)
                    for piece in _pieces(frames[:stop]):
                        yield piece
                    del piece  # it would be held for as long as nothing follows
                    over = stop is not None
                    passing.sent()
                if over:
                    return
                if place == cursor:
                    place = await self._wait(ring, cursor, watch, seen, passing)
                    if outlet.waits:
                        yield b""
                cursor = place
                if passing.seconds_left <= early:
                    yield PING
                    passing.sent()

    def _ring_at(self, ring: Ring | None, stream_id: str, cursor: Cursor) -> Ring | None:
        """Give the ring that the cursor stands in; one that was read so far is read to its end, also when it closed."""
        if not self._may_send():
            return None
        if ring is not None and not ring.lost and ring.fence == cursor.fence:
            return ring
        found = self._rings.find(stream_id)
        return found if found is not None and not found.lost and found.fence == cursor.fence else None

    def _running(self, ring: Ring | None, cursor: Cursor) -> _Found | None:
        """Give what the ring has behind the cursor, which may be nothing yet; None when the ring can't tell."""
        frames = ring.after(cursor.n) if ring is not None else None
        if ring is None or frames is None or (ring.closed and not frames):
            return None
        return frames, Cursor(ring.fence, cursor.n + len(frames)) if frames else cursor, False

    async def _stored(self, scope: _Scope, cursor: Cursor, seconds: float) -> _Found:
        """Give what is stored behind the cursor; while the database is away, nothing."""
        younger = self._rings.find(scope.stream_id)
        try:
            async with asyncio.timeout(seconds):
                record, stored = await self.reads.after(scope.conversation, scope.stream_id, cursor)
        except (DatabaseError, TimeoutError):
            return [], cursor, False
        if record is None or (record.expired and not stored):
            raise CutError
        if frames := list(_behind(stored, cursor)):
            return frames, cursor_of(frames[-1]), False
        if younger is not None and not younger.lost and younger.fence > cursor.fence:
            # It was there before the read, so all that older operations left has been read.
            return [], Cursor(younger.fence, 0), False
        return [], cursor, scope.is_over(record, cursor)

    async def _wait(self, ring: Ring | None, cursor: Cursor, watch: Watch, seen: int, passing: "_Passing") -> Cursor:
        """Wait until there may be more, or a heartbeat is due; gives the cursor behind what has passed meanwhile."""
        if self._cut:
            raise CutError
        with suppress(TimeoutError), passing.waiting():
            if ring is None or ring.lost or ring.closed:
                await watch.since(seen, POLL_SECONDS)
            else:
                passing.n = cursor.n
                try:
                    await ring.grown(cursor.n, passing if passing.outlet.is_open else None)
                finally:
                    cursor = Cursor(cursor.fence, passing.n)
        return cursor


class _Passing:
    """Lets what is said while a reader waits pass to its outlet, and knows when its heartbeat is due.

    `n` is the number of the last frame that has passed.
    """

    __slots__ = ("_heartbeat", "_may_send", "_sent_at", "n", "outlet", "patience")

    def __init__(self, outlet: Outlet, may_send: Callable[[], bool], patience: Patience, heartbeat: float) -> None:
        self.outlet = outlet
        self.patience = patience
        self.n = 0
        self._may_send = may_send
        self._heartbeat = heartbeat
        self._sent_at = perf_counter()

    def __call__(self, frame: bytes) -> bool:
        """See `Taker`: what comes close behind is left to the reader, and so is what this process may not send.

        The reader looks at what is stored, and sends all that there is in one write.
        """
        said_at = perf_counter()
        if said_at - self._sent_at < CLOSE_SECONDS or not self._may_send():
            return False
        self._sent_at = said_at
        self.n += 1
        return self.outlet.write(frame)

    def sent(self) -> None:
        """Put the heartbeat off."""
        self._sent_at = perf_counter()

    @property
    def seconds_left(self) -> float:
        """Give the seconds until the heartbeat is due."""
        return self._sent_at + self._heartbeat - perf_counter()

    def waiting(self) -> Patience:
        """Give the context of a wait until then."""
        return self.patience.until(asyncio.get_running_loop().time() + self.seconds_left)


def _behind(stored: list[Stored], cursor: Cursor) -> Iterator[bytes]:
    """Give the stored frames that lie behind the cursor."""
    for batch in stored:
        whole = batch.fence > cursor.fence or batch.first_n > cursor.n
        for frame in split(batch.frames):
            if whole or cursor_of(frame) > cursor:
                yield frame


def _pieces(frames: list[bytes]) -> Iterable[bytes]:
    """Join frames to pieces of about `PIECE_BYTES`."""
    return frames if len(frames) == 1 else _joined(frames)


def _joined(frames: list[bytes]) -> Iterator[bytes]:
    piece: list[bytes] = []
    size = 0
    for frame in frames:
        piece.append(frame)
        size += len(frame)
        if size >= PIECE_BYTES:
            yield b"".join(piece)
            piece, size = [], 0
    if piece:
        yield b"".join(piece)
