"""Takeover: operations whose process has gone are ended by another within seconds: no conversation is stuck."""

import asyncio
from typing import Final
from uuid import UUID

import structlog

from app.domain.chunks import GmiError
from app.domain.errors import TurnInterruptedError
from app.domain.turn import StreamStatus
from app.store import claims, inbound, replicas
from app.store.database import is_lost
from app.turn.orchestrator.ending import Reason, end_seized
from app.turn.orchestrator.services import Services

AT_ONCE: Final = 20
INTERRUPTED: Final = Reason(
    StreamStatus.FAILED,
    "interrupted",
    GmiError(TurnInterruptedError.code, "The process that ran the turn went away before it ended."),
)


class Takeover:
    """Looks for dead replicas every `interval` seconds and ends what they ran."""

    def __init__(self, services: Services, *, interval: float) -> None:
        """Keep what is needed; `run` does the work."""
        self._services = services
        self._database = services.database
        self._interval = interval
        self._log = structlog.get_logger(__name__)

    async def run(self) -> None:
        """Sweep for ever."""
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self.sweep()
            except Exception as error:  # noqa: BLE001 - sweeps go on whatever one met
                if not is_lost(error):
                    self._log.exception("takeover.sweep_failed")

    async def sweep(self) -> int:
        """Mark replicas whose time is over, end what dead ones ran, and tell how many operations that were."""
        if self._services.lease.may_take_over():
            async with self._database.transaction() as connection:
                await replicas.mark_expired(connection)
                await replicas.forget_dead(connection)
        async with self._database.transaction() as connection:
            orphans = await replicas.orphans(connection, AT_ONCE)
        for conversation, operation in orphans:
            await self._end(conversation, operation)
        return len(orphans)

    async def _end(self, conversation: UUID, operation: UUID) -> None:
        """End one operation in one transaction, under a higher fence than its own."""
        async with self._database.transaction() as connection:
            seized = await claims.seize(connection, conversation, operation, only_dead=True)
            if seized is None:
                return
            entry = await inbound.find(connection, conversation, operation)
            if entry is not None:
                await end_seized(connection, self._services, seized, entry, INTERRUPTED)
        if entry is not None:
            self._services.wakeups.wake([entry.stream_id])
            self._log.warning("takeover.ended", stream_id=entry.stream_id, turn_id=entry.turn_id)
