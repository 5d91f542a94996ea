"""A ring: the frames of one running operation, in memory, for the readers of this process.

There is no queue per reader. A reader holds a cursor, wakes when the ring grows, and takes what is there. The ring
never drops a frame that is not durable; what is durable and old goes first, and a reader that needs it reads the
database.
"""

import asyncio
from collections.abc import Callable
from typing import Final
from uuid import UUID

from app.domain.frozen import dataclass
from app.streaming.bell import Bell

KEPT_BYTES: Final = 1 << 10
"""So much of what is durable stays for readers that are a little behind; those that are further behind, or come
later, read the database. Every running turn holds as much."""

UNWRITTEN_BYTES: Final = 4 << 20
PIECE_BYTES: Final = 64 << 10
"""About how much a reader takes at once: what a slow socket holds in memory is bounded by it."""

FEW_READERS: Final = 32
GATHER_SECONDS: Final = 0.05
"""Up to so many readers are woken by every frame; more of them are woken once in this time, as by a flush."""


Taker = Callable[[bytes], bool]
"""Takes a frame where it is said; tells whether it takes the next one, too."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Frames `first_n` to `last_n` of one fence, as they are stored. A batch never changes once it was sent."""

    conversation: UUID
    stream_id: str
    fence: int
    first_n: int
    last_n: int
    frames: bytes


class LostFenceError(Exception):
    """Another operation holds the conversation now: nothing more of this one may be written or sent."""


class Ring:
    """The frames of one operation, numbered from 1, and how many of them are durable."""

    def __init__(self, conversation: UUID, stream_id: str, fence: int) -> None:
        """Start empty."""
        self.conversation = conversation
        self.stream_id = stream_id
        self.fence = fence
        self.first_n = 1
        self.durable_n = 0
        self.sealed = False
        self.closed = False
        self.lost = False
        self.in_flight: Batch | None = None
        self.retry_at = 0.0
        self.on_lost: Callable[[], None] | None = None
        self._frames: list[bytes] = []
        self._kept = 0
        self._unwritten = 0
        self._bell = Bell()
        self._changed = Bell()
        self._takers: list[Taker] = []
        self._timer: asyncio.TimerHandle | None = None
        self._drained = Bell()

    @property
    def last_n(self) -> int:
        """The number of the newest frame; 0 when there is none."""
        return self.first_n + len(self._frames) - 1

    def append(self, frame: bytes) -> None:
        """Add a frame and wake the readers. Raises LostFenceError when the operation no longer holds its fence."""
        if self.lost:
            raise LostFenceError
        self._push(frame)
        self._hand(frame)

    def append_durable(self, frames: list[bytes]) -> None:
        """Add frames that are stored already (an operation's first and last ones) and wake the readers."""
        for frame in frames:
            self._push(frame)
        self._takers.clear()  # they are woken for these, and what is said before they look comes behind them
        self._stored(self.last_n)  # and nothing goes before they have looked: these frames can be large
        self.nudge()

    @property
    def has_room(self) -> bool:
        """Tell whether the ring may take more."""
        return self._unwritten < UNWRITTEN_BYTES

    async def room(self) -> None:
        """Wait until the ring may take more, or is closed or lost: at its bound, the provider is read no further."""
        while not (self.has_room or self.closed or self.lost):
            await self._drained.heard()

    def next_batch(self) -> Batch | None:
        """Give the batch to write next: the one whose outcome is not known yet, else all that is not durable."""
        if self.in_flight is None:
            self.in_flight = self._batch_after(self.durable_n)
        return self.in_flight

    def all_batches(self) -> list[Batch]:
        """Give everything that is not durable, for a transaction that takes it along."""
        flying = self.in_flight
        rest = self._batch_after(flying.last_n if flying else self.durable_n)
        return [batch for batch in (flying, rest) if batch is not None]

    def _batch_after(self, n: int) -> Batch | None:
        frames = self._frames[n + 1 - self.first_n :]
        if not frames:
            return None
        return Batch(self.conversation, self.stream_id, self.fence, n + 1, self.last_n, b"".join(frames))

    def mark_durable(self, n: int) -> None:
        """Learn that the frames up to `n` are stored; old ones may go."""
        self._stored(n)
        self._forget()

    def _stored(self, n: int) -> None:
        if n > self.durable_n:
            written = self._frames[self.durable_n + 1 - self.first_n : n + 1 - self.first_n]
            self._unwritten -= sum(map(len, written))
            self.durable_n = n
        if self.in_flight is not None and self.in_flight.last_n <= self.durable_n:
            self.in_flight = None
        if self.has_room:
            self._drained.ring()

    def _forget(self) -> None:
        """Let durable frames go, the oldest first, while there are too many; not while many readers are to be woken."""
        if self._timer is not None:
            return
        gone = 0
        while self._kept > KEPT_BYTES and self.first_n <= self.durable_n:
            self._kept -= len(self._frames[gone])
            self.first_n += 1
            gone += 1
        if gone:
            del self._frames[:gone]

    def after(self, n: int) -> list[bytes] | None:
        """Give the next frames behind `n`, about `PIECE_BYTES` of them; None when the ring no longer holds the next."""
        if n + 1 < self.first_n:
            return None
        frames: list[bytes] = []
        size = 0
        for place in range(n + 1 - self.first_n, len(self._frames)):
            frames.append(self._frames[place])
            size += len(frames[-1])
            if size >= PIECE_BYTES:
                break
        return frames

    async def grown(self, n: int, taker: Taker | None = None) -> None:
        """Wait until there may be a frame behind `n`, or the ring is closed or lost; may return for nothing.

        A `taker` is handed the frames that are said meanwhile, from `n` + 1 on, until it takes one no more: it says
        whether it goes on. Frames that are stored already it gets no more than others do.
        """
        if self.last_n > n or self.closed or self.lost:
            return
        if taker is None or len(self._takers) >= FEW_READERS:
            await self._bell.heard()
            return
        self._takers.append(taker)
        try:
            await self._changed.heard()
        finally:
            if taker in self._takers:
                self._takers.remove(taker)

    def rewrite(self, change: Callable[[bytes], bytes]) -> None:
        """Change frames in place, for whoever has not read them yet; a batch on its way stays as it is."""
        self._frames = [change(frame) for frame in self._frames]
        self._kept = sum(map(len, self._frames))
        self._unwritten = sum(map(len, self._frames[max(0, self.durable_n + 1 - self.first_n) :]))

    def close(self) -> None:
        """No frame will follow, and nobody is left who would have to stop if the ring is lost."""
        self.closed = True
        self.on_lost = None
        self._drained.ring()
        self.nudge()

    def lose(self) -> None:
        """The fence is gone: readers go on from the database, the operation stops."""
        if self.lost:
            return
        self.lost = True
        self._drained.ring()
        self.nudge()
        if self.on_lost is not None:
            self.on_lost()

    def nudge(self) -> None:
        """Wake all readers now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._changed.ring()
        self._bell.ring()

    def _push(self, frame: bytes) -> None:
        size = len(frame)
        self._frames.append(frame)
        self._kept += size
        self._unwritten += size

    def _hand(self, frame: bytes) -> None:
        """Give a frame to the takers and wake the others."""
        done: list[Taker] = []
        for taker in self._takers:
            if not taker(frame):
                done.append(taker)  # noqa: PERF401 - a comprehension costs more where there is one taker, as mostly
        if done:
            self._takers = [taker for taker in self._takers if taker not in done]
            self._changed.ring()
        waiting = len(self._bell)
        if 0 < waiting <= FEW_READERS:
            self._bell.ring()
        elif waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_SECONDS, self.nudge)


class Rings:
    """The rings of this process, by stream. A stream has at most one running operation."""

    def __init__(self) -> None:
        """Start with none."""
        self._by_stream: dict[str, Ring] = {}

    def open(self, ring: Ring) -> None:
        """Let readers find the ring."""
        self._by_stream[ring.stream_id] = ring

    def find(self, stream_id: str) -> Ring | None:
        """Give the ring of the operation that runs on the stream in this process, if there is one."""
        return self._by_stream.get(stream_id)

    def drop(self, ring: Ring) -> None:
        """Forget the ring; readers that hold it read it to its end."""
        if self._by_stream.get(ring.stream_id) is ring:
            del self._by_stream[ring.stream_id]

    def all(self) -> list[Ring]:
        """Give every ring."""
        return list(self._by_stream.values())
