"""The retention job: small batches, one stream a transaction, on every replica; they leave each other's work alone."""

import asyncio
from datetime import timedelta
from typing import Final

import structlog

from app.store import retention
from app.store.database import Database, is_lost

LOOK_SECONDS: Final = 10.0
AT_ONCE: Final = 50


class Retention:
    """Removes the events of streams that have ended longer ago than `keep`."""

    def __init__(self, database: Database, *, keep: timedelta, interval: float = LOOK_SECONDS) -> None:
        """`interval` is the time between two looks, in seconds, when there was nothing more to do."""
        self._database = database
        self._keep = keep
        self._interval = interval
        self._log = structlog.get_logger(__name__)

    async def run(self) -> None:
        """Look for ever."""
        more = False
        while True:
            await asyncio.sleep(0 if more else self._interval)
            more = False
            try:
                more = await self.look() == AT_ONCE
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
