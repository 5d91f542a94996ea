"""The log writer: one task that makes the frames of all running operations of this process durable, in groups."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

import structlog

from app.store.database import Database, is_lost
from app.store.events import Flushed, flush
from app.streaming.ring import Batch, LostFenceError, Ring, Rings
from app.streaming.wakeups import Wakeups

STATEMENT_BYTES: Final = 256 << 10
"""About how much one statement takes: the driver and the event loop have a copy of it each until it is sent."""

Pair = tuple[Ring, Batch]

_PAUSE_AFTER_LOSS: Final = 0.25
_PAUSE_AFTER_FAULT: Final = 1.0
_SETTLING_FLUSHES: Final = 20


class LogWriter:
    """Writes new frames every `interval` seconds in one statement, and wakes the readers of their streams."""

    def __init__(
        self,
        database: Database,
        rings: Rings,
        *,
        interval: float,
        wakeups: Wakeups,
    ) -> None:
        """Keep what is needed; `run` does the work."""
        self._database = database
        self._rings = rings
        self._interval = interval
        self._wakeups = wakeups
        self._log = structlog.get_logger(__name__)
        self._flushing = asyncio.Lock()

    async def run(self) -> None:
        """Write for ever; a database that is away is tried again, and frames wait."""
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self.flush()
            except Exception as error:  # noqa: BLE001 - the log must go on whatever one flush met
                if not is_lost(error):
                    self._log.exception("event_log.flush_failed")
                await asyncio.sleep(_PAUSE_AFTER_LOSS)

    async def seal(self, ring: Ring) -> None:
        """Keep the ring out of later flushes, and wait for the one in flight: its operation takes the rest along.

        Raises LostFenceError for a ring that was handed over or taken: whoever has it now decides how it ends.
        """
        ring.sealed = True
        async with self._flushing:
            if ring.lost:
                raise LostFenceError

    async def settle(self) -> None:
        """Write until all that was said before is durable: behind a batch that was skipped comes the rest.

        A stream whose row stays held, or that the database refuses, is given up after a second.
        """
        said = [(ring, ring.last_n) for ring in self._rings.all()]
        for _ in range(_SETTLING_FLUSHES):
            await self.flush()
            if not any(n > ring.durable_n and not (ring.sealed or ring.lost) for ring, n in said):
                return
            await asyncio.sleep(self._interval)

    async def flush(self) -> None:
        """Write one batch of each stream. A batch whose outcome is unknown stays the same and is written again."""
        async with self._flushing:
            now = asyncio.get_running_loop().time()
            # What failed by itself before is tried by itself: it would take the others' statement with it.
            alone = [ring for ring in self._rings.all() if 0 < ring.retry_at <= now]
            for pairs in _groups(ring for ring in self._rings.all() if not ring.retry_at):
                await self._write(pairs)
            for pairs in _groups(alone):
                for pair in pairs:
                    await self._write_alone(pair)

    async def _write(self, pairs: list[Pair]) -> None:
        try:
            outcomes = await flush(self._database, [batch for _, batch in pairs])
        except Exception as error:
            if is_lost(error):
                raise
            for pair in pairs:
                await self._write_alone(pair)
            return
        self._note(pairs, outcomes)

    async def _write_alone(self, pair: Pair) -> None:
        ring, batch = pair
        try:
            outcomes = await flush(self._database, [batch])
        except Exception as error:
            if is_lost(error):
                raise
            if not ring.retry_at:
                self._log.exception("event_log.stream_failed", stream_id=ring.stream_id)
            ring.retry_at = asyncio.get_running_loop().time() + _PAUSE_AFTER_FAULT
            return
        ring.retry_at = 0.0
        self._note([pair], outcomes)

    def _note(self, pairs: list[Pair], outcomes: list[Flushed]) -> None:
        """Learn what became of the batches, and wake the readers of those streams that have grown or were lost."""
        for (ring, batch), outcome in zip(pairs, outcomes, strict=True):
            if outcome is Flushed.WRITTEN:
                ring.mark_durable(batch.last_n)
            elif outcome is Flushed.LOST:
                ring.lose()
        told = zip(pairs, outcomes, strict=True)
        self._wakeups.wake(ring.stream_id for (ring, _), outcome in told if outcome is not Flushed.SKIPPED)


def _groups(rings: Iterable[Ring]) -> Iterator[list[Pair]]:
    """Give what the rings have to be written, as much at a time as one statement is to take."""
    pairs: list[Pair] = []
    size = 0
    for ring in rings:
        batch = None if ring.sealed or ring.lost else ring.next_batch()
        if batch is not None:
            pairs.append((ring, batch))
            size += len(batch.frames)
            if size >= STATEMENT_BYTES:
                yield pairs
                pairs, size = [], 0
    if pairs:
        yield pairs
