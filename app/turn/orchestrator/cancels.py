"""Cancels: how an operation of this process learns that somebody wants it to end, and which ones there are.

The intent is stored, so any replica can cancel what another runs. Within a process it arrives at once; from elsewhere
within a second, when this process looks for intents.
"""

import asyncio
from collections.abc import Callable
from typing import Final
from uuid import UUID

import structlog

from app.store import claims
from app.store.claims import Running
from app.store.database import Database, is_lost

LOOK_SECONDS: Final = 1.0


class Cancels:
    """The operations of this process that can be cancelled, by fence."""

    def __init__(self, database: Database, replica: Callable[[], UUID]) -> None:
        """`replica` gives this process's id."""
        self._database = database
        self._replica = replica
        self._by_fence: dict[int, tuple[Callable[[], None], Callable[[], None]]] = {}
        self._at_work: dict[object, UUID] = {}
        self._log = structlog.get_logger(__name__)

    def enter(self, run: object, operation: UUID) -> None:
        """Note, before anything of it is stored, that this process works on the operation.

        One that was lost may run here again before its lost run has ended, so each run is noted by itself.
        """
        self._at_work[run] = operation

    def leave(self, run: object) -> None:
        """Note that this process does nothing more for that run of an operation."""
        self._at_work.pop(run, None)

    def at_work(self) -> frozenset[UUID]:
        """Give all operations that this process still does anything for."""
        return frozenset(self._at_work.values())

    def works_on(self, operation: UUID) -> bool:
        """Tell whether this process still does anything for the operation; else nobody will end it."""
        return operation in self._at_work.values()

    def register(self, fence: int, cancel: Callable[[], None], lose: Callable[[], None]) -> None:
        """Let the operation that holds the fence be cancelled, or told that it is another's now."""
        self._by_fence[fence] = cancel, lose

    def forget(self, fence: int) -> None:
        """The operation has ended."""
        self._by_fence.pop(fence, None)

    def ask(self, running: Running) -> None:
        """Cancel the operation now, if it is one of this process."""
        self.stop(running.fence)

    def stop(self, fence: int) -> None:
        """Cancel the operation that holds the fence in this process, if one does."""
        found = self._by_fence.get(fence)
        if found is not None:
            found[0]()

    async def run(self) -> None:
        """Look for intents for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - looking goes on whatever one look met
                if not is_lost(error):
                    self._log.exception("cancels.look_failed")

    async def look(self) -> None:
        """Read once which of this process's operations are to end, and which it no longer holds.

        How those end is for others to say.
        """
        known = set(self._by_fence)
        if not known:
            return
        async with self._database.transaction() as connection:
            found = await claims.to_cancel(connection, self._replica())
            held = await claims.held_by(connection, self._replica())
        for running in found:
            self.ask(running)
        for fence in known - held:
            if fence in self._by_fence:
                self._by_fence[fence][1]()
