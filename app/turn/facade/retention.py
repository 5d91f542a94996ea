"""The retention job: small batches, one stream a transaction, on every replica; they leave each other's work alone.

It also forgets what was remembered and has faded.
"""

import asyncio
from datetime import timedelta
from typing import Final

import structlog

from app.store import retention, traces
from app.store.database import Database, is_lost
from app.store.traces import Faint

LOOK_SECONDS: Final = 10.0
AT_ONCE: Final = 50
FADE_SECONDS: Final = 3600.0
FADED_AT_ONCE: Final = 500


class Retention:
    """Removes the events of streams that have ended longer ago than `keep`, and what has `faded` from memory."""

    def __init__(
        self, database: Database, *, keep: timedelta, faded: timedelta, interval: float = LOOK_SECONDS
    ) -> None:
        """`interval` is the time between two looks, in seconds, when there was nothing more to do.

        `faded` is for how long a faded memory must not have been told to be forgotten; that is looked for each hour.
        """
        self._database = database
        self._keep = keep
        self._faded = Faint(faded)
        self._interval = interval
        self._log = structlog.get_logger(__name__)

    async def run(self) -> None:
        """Look for ever."""
        more, fading = False, 0.0
        while True:
            await asyncio.sleep(0 if more else self._interval)
            more = False
            try:
                more = await self.look() == AT_ONCE
                if (now := asyncio.get_running_loop().time()) >= fading:
                    further = await self.fade() == FADED_AT_ONCE
                    fading = now if further else now + FADE_SECONDS
                    more = more or further
            except Exception as error:  # noqa: BLE001 - looking goes on whatever one look met
                if not is_lost(error):
                    self._log.exception("retention.look_failed")

    async def look(self) -> int:
        """Expire one batch of streams; tells how many went."""
        async with self._database.transaction() as connection:
            found = await retention.due(connection, keep=self._keep, limit=AT_ONCE)
        gone = 0
        for conversation, stream_id in found:
            async with self._database.transaction() as connection:
                gone += await retention.expire(connection, conversation, stream_id)
        if gone:
            self._log.info("retention.expired", streams=gone)
        return gone

    async def fade(self) -> int:
        """Forget one batch of memories that have faded; tells how many went."""
        async with self._database.transaction() as connection:
            gone = await traces.fade(connection, self._faded, limit=FADED_AT_ONCE)
        if gone:
            self._log.info("memory.faded", traces=gone)
        return gone
