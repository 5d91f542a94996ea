"""The lease: this process's one row in `replicas`, renewed while it lives.

A marked-dead row is never renewed: the process then drops all it runs and goes on under a new id. Past its own deadline
(from before the last renewal that landed) it sends no delta and starts no model or tool call until one lands.
"""

import asyncio
from datetime import timedelta
from typing import Final
from uuid import UUID

import structlog

from app.domain.clock import Clock
from app.domain.ids import fresh_uuid
from app.domain.policy import LeasePolicy
from app.store import replicas
from app.store.database import Database, is_lost
from app.streaming.ring import Rings

_RETRY_SECONDS: Final = 0.5


class Lease:
    """One process among its replicas."""

    def __init__(self, database: Database, clock: Clock, policy: LeasePolicy, *, rings: Rings) -> None:
        """All `rings` are lost when another process has declared this one dead: their operations stop."""
        self._database = database
        self._clock = clock
        self._policy = policy
        self._rings = rings
        self._length = timedelta(seconds=policy.length)
        self._deadline = 0.0
        self._leaving = False
        self._landed = asyncio.Event()
        self._log = structlog.get_logger(__name__)
        self.id = fresh_uuid()
        self.contact_since: float | None = None

    async def start(self) -> None:
        """Register; raises when the database can't be reached."""
        await self._register()

    async def run(self) -> None:
        """Renew for ever."""
        pause = self._policy.renew
        while True:
            await asyncio.sleep(pause)
            try:
                await self._renew()
                pause = self._policy.renew
            except Exception as error:  # noqa: BLE001 - a lease is renewed whatever one try met
                if not is_lost(error):
                    self._log.exception("lease.renew_failed")
                self.contact_since = None
                pause = _RETRY_SECONDS

    @property
    def length(self) -> timedelta:
        """How long a renewal holds."""
        return self._length

    def is_gone(self, replica: UUID) -> bool:
        """Tell whether that id is no longer this process's."""
        return replica != self.id

    def holds(self) -> bool:
        """Tell whether this process may act: its last renewal is young enough."""
        return self._clock.boot_seconds() < self._deadline

    async def until_fresh(self) -> None:
        """Wait until a renewal has landed."""
        while not self.holds():
            self._landed.clear()
            await self._landed.wait()

    def may_take_over(self) -> bool:
        """Tell whether this process has been in unbroken contact with the database for a whole lease."""
        since = self.contact_since
        return since is not None and self.holds() and self._clock.boot_seconds() - since >= self._policy.length

    def hold_still(self) -> None:
        """Never hold again: what runs here says nothing more, so that all it has said can be written."""
        self._leaving, self._deadline = True, 0.0

    async def leave(self) -> None:
        """Stop living, so that others may take over at once what this process still runs."""
        async with self._database.transaction() as connection:
            await replicas.leave(connection, self.id)

    async def _register(self) -> None:
        before = self._clock.boot_seconds()
        async with self._database.transaction(reserved=True) as connection:
            await replicas.register(connection, self.id, self._length)
        self._extend(before)

    async def _renew(self) -> None:
        before = self._clock.boot_seconds()
        async with asyncio.timeout(self._policy.renew), self._database.transaction(reserved=True) as connection:
            alive = await replicas.renew(connection, self.id, self._length)
        if alive:
            self._extend(before)
            return
        lost, self.id = self.id, fresh_uuid()
        running = self._rings.all()
        self._log.warning("lease.lost", replica=str(lost), operations=len(running))
        for ring in running:
            ring.lose()
        await self._register()

    def _extend(self, before: float) -> None:
        if self._leaving:
            return
        if self.contact_since is None or before >= self._deadline:
            # Also after a sleep of the whole machine: nobody could renew meanwhile.
            self.contact_since = before
        self._deadline = before + self._policy.length
        self._landed.set()
