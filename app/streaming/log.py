"""The log writer: one task that makes the frames of all running operations of this process durable, in groups."""

import asyncio
from typing import Final

import structlog

from app.store.database import Database, is_lost
from app.store.events import Flushed, flush
from app.streaming.ring import Batch, Ring, Rings
from app.streaming.wakeups import Wakeups

_PAUSE_AFTER_LOSS: Final = 0.25


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
        self._idle = asyncio.Event()
        self._idle.set()

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
        """Keep the ring out of later flushes, and wait for the one in flight: its operation takes the rest along."""
        ring.sealed = True
        await self._idle.wait()

    async def flush(self) -> None:
        """Write what there is. A batch whose outcome is unknown stays the same and is written again."""
        due = [ring for ring in self._rings.all() if not ring.sealed and not ring.lost]
        pairs = [(ring, batch) for ring in due if (batch := ring.next_batch()) is not None]
        if not pairs:
            return
        self._idle.clear()
        try:
            await self._write(pairs)
        finally:
            self._idle.set()
        self._wakeups.wake(ring.stream_id for ring, _ in pairs)

    async def _write(self, pairs: list[tuple[Ring, Batch]]) -> None:
        try:
            outcomes = await flush(self._database, [batch for _, batch in pairs])
        except Exception as error:
            if len(pairs) == 1 or is_lost(error):
                raise
            # One stream's content may be what failed: the others must not wait for it.
            for pair in pairs:
                await self._write_alone(pair)
            return
        for (ring, batch), outcome in zip(pairs, outcomes, strict=True):
            if outcome is Flushed.WRITTEN:
                ring.mark_durable(batch.last_n)
            elif outcome is Flushed.LOST:
                ring.lose()

    async def _write_alone(self, pair: tuple[Ring, Batch]) -> None:
        try:
            await self._write([pair])
        except Exception as error:
            if is_lost(error):
                raise
            self._log.exception("event_log.stream_failed", stream_id=pair[0].stream_id)
