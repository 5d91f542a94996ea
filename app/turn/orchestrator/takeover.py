"""Takeover: operations whose process has gone are run again or ended by another within seconds.

An operation of which nothing was seen outside is run once more; any other is ended, and what its readers had is kept.
So is an operation of this very process that nothing here works on any more: its outcome could not be written, say.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol
from uuid import UUID

import structlog

from app.domain.chunks import GmiError
from app.domain.errors import TurnInterruptedError
from app.domain.turn import StreamStatus
from app.store import claims, inbound, replicas
from app.store.database import is_lost
from app.turn.orchestrator.ending import Reason, end_bare, end_seized
from app.turn.orchestrator.partial import UnjudgedError, judged_partial
from app.turn.orchestrator.queue import free
from app.turn.orchestrator.rerun import Rerun, may_run_again, reclaim
from app.turn.orchestrator.services import Services
from app.turn.orchestrator.setbacks import Setbacks

AT_ONCE: Final = 20
STUCK_SECONDS: Final = 5.0
INTERRUPTED: Final = Reason(
    StreamStatus.FAILED,
    "interrupted",
    GmiError(TurnInterruptedError.code, "The process that ran the turn went away before it ended."),
)
BROKEN_OFF: Final = Reason(
    StreamStatus.FAILED,
    "interrupted",
    GmiError(TurnInterruptedError.code, "The turn broke off before its end could be stored."),
)


class Running(Protocol):
    """An operation that was started again."""

    @property
    def done(self) -> bool:
        """Tell whether it has ended."""
        ...


class Takeover:
    """Looks for dead replicas every `interval` seconds and takes over what they ran."""

    def __init__(self, services: Services, *, interval: float, most_reruns: int) -> None:
        """At most `most_reruns` operations are run again at a time; what is beyond waits for the next look."""
        self._services = services
        self._database = services.database
        self._interval = interval
        self._most_reruns = most_reruns
        self._reruns: list[Running] = []
        self._setbacks = Setbacks[UUID](services.clock.boot_seconds)
        self._log = structlog.get_logger(__name__)

    async def run(self, start: Callable[[Rerun], Running]) -> None:
        """Look for ever; `start` runs an operation again in a task of its own."""
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self.sweep(start)
            except Exception as error:  # noqa: BLE001 - sweeps go on whatever one met
                if not is_lost(error):
                    self._log.exception("takeover.sweep_failed")

    async def sweep(self, start: Callable[[Rerun], Running]) -> int:
        """Mark replicas whose time is over, take over what dead ones ran, and tell how many operations that were."""
        lease = self._services.lease
        if lease.may_take_over():
            async with self._database.transaction() as connection:
                await replicas.mark_expired(connection, lease.length)
                await replicas.forget_dead(connection)
                await inbound.forget_waiters(connection)
        async with self._database.transaction() as connection:
            orphans = await replicas.orphans(connection, AT_ONCE, besides=self._setbacks.waiting())
        taken = [
            await self._try(operation, self._take(conversation, operation, start))
            for conversation, operation in orphans
        ]
        if not all(taken):
            await self._unlock()
        return sum(taken) + await self._end_strays()

    async def _unlock(self) -> None:
        """Let the next look have what a frozen process may still hold locked."""
        async with self._database.transaction() as connection:
            ended = await replicas.end_stuck(connection, STUCK_SECONDS)
        if ended:
            self._log.warning("takeover.stuck_sessions_ended", sessions=ended)

    async def _end_strays(self) -> int:
        """End operations and waiters that are stored as this process's and that nothing here works on."""
        replica, cancels = self._services.lease.id, self._services.cancels
        before = cancels.at_work()
        async with self._database.transaction() as connection:
            running = await claims.of_replica(connection, replica)
            waiting = await inbound.waiters_of(connection, replica)
        # An operation is noted before anything of it is stored, and while it was stored it may have ended: what was
        # noted neither before nor behind the look has got lost.
        known = before | cancels.at_work() | self._setbacks.waiting()
        strays = [found for found in running if found[1] not in known]
        for conversation, operation in waiting:
            if operation not in before and not cancels.works_on(operation):
                await self._try(operation, self._dequeue(conversation, operation))
        return sum(
            [await self._try(operation, self._end(conversation, operation)) for conversation, operation in strays]
        )

    async def _try(self, operation: UUID, ending: Awaitable[bool]) -> bool:
        """Let a fault with one conversation not keep the others waiting, nor be met again at once."""
        try:
            ended = await ending
        except UnjudgedError:
            return False
        except Exception as error:
            if is_lost(error):
                raise
            setback = self._setbacks.failed(operation)
            self._log.exception(
                "takeover.failed",
                operation=str(operation),
                failures=setback.failures,
                again_in_seconds=setback.wait_seconds,
            )
            return False
        self._setbacks.ended(operation)
        return ended

    async def _take(self, conversation: UUID, operation: UUID, start: Callable[[Rerun], Running]) -> bool:
        """Take one operation over, in one transaction, under a higher fence than its own."""
        self._reruns = [rerun for rerun in self._reruns if not rerun.done]
        if self._setbacks.are_many(operation):
            return await self._end_bare(conversation, operation, INTERRUPTED, only_dead=True)
        judged = await judged_partial(self._services, conversation, operation)
        async with self._database.transaction() as connection:
            entry = await inbound.find(connection, conversation, operation)
            rerun = await reclaim(connection, self._services, entry) if entry and self._has_room else None
            if rerun is None:
                if entry is not None and not self._has_room and may_run_again(entry):
                    return False
                seized = await claims.seize(connection, conversation, operation, only_dead=True)
                if seized is None or entry is None:
                    return False
                await end_seized(connection, self._services, seized, entry, INTERRUPTED, judged=judged)
        if entry is None:
            return False
        if rerun is not None:
            self._reruns.append(start(rerun))
            self._log.warning("takeover.run_again", stream_id=entry.stream_id, turn_id=entry.turn_id)
        else:
            self._services.wakeups.wake([entry.stream_id, free(conversation)])
            self._log.warning("takeover.ended", stream_id=entry.stream_id, turn_id=entry.turn_id)
        return True

    async def _end(self, conversation: UUID, operation: UUID) -> bool:
        """End an operation of this process's own, which lives."""
        if self._setbacks.are_many(operation):
            return await self._end_bare(conversation, operation, BROKEN_OFF, only_dead=False)
        judged = await judged_partial(self._services, conversation, operation)
        async with self._database.transaction() as connection:
            entry = await inbound.find(connection, conversation, operation)
            seized = await claims.seize(connection, conversation, operation, only_dead=False)
            if seized is None or entry is None:
                return False
            await end_seized(connection, self._services, seized, entry, BROKEN_OFF, judged=judged)
        self._services.wakeups.wake([entry.stream_id, free(conversation)])
        self._log.warning("takeover.stray_ended", stream_id=entry.stream_id, turn_id=entry.turn_id)
        return True

    async def _end_bare(self, conversation: UUID, operation: UUID, reason: Reason, *, only_dead: bool) -> bool:
        """End an operation that could not be ended with all that it had said: its conversation must be free again."""
        async with self._database.transaction() as connection:
            entry = await inbound.find(connection, conversation, operation)
            seized = await claims.seize(connection, conversation, operation, only_dead=only_dead)
            if seized is None or entry is None:
                return False
            await end_bare(connection, self._services, seized, entry, reason)
        self._services.wakeups.wake([entry.stream_id, free(conversation)])
        self._log.error("takeover.ended_bare", stream_id=entry.stream_id, turn_id=entry.turn_id)
        return True

    async def _dequeue(self, conversation: UUID, operation: UUID) -> bool:
        async with self._database.transaction() as connection:
            await inbound.leave_queue(connection, conversation, operation)
        self._services.wakeups.wake([free(conversation)])
        return True

    @property
    def _has_room(self) -> bool:
        return len(self._reruns) < self._most_reruns
