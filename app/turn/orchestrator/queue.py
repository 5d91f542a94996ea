"""What a turn does when its conversation is busy: it is refused, waits its turn, or makes the other one give way.

Waiters are rows, so order holds over all replicas, and a waiter whose process is gone blocks nobody.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final
from uuid import UUID

from app.domain.errors import ConversationBusyError, DatabaseError, RateLimitedError
from app.domain.frozen import dataclass
from app.domain.turn import OnBusy, StreamStatus
from app.store import claims, inbound
from app.store.claims import Running
from app.store.database import Connection
from app.store.inbound import InboundRecord, KeyTakenError
from app.turn.orchestrator.ending import Reason, end_seized
from app.turn.orchestrator.operation import Operation
from app.turn.orchestrator.partial import UnjudgedError, judged_partial

LOOK_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 2.0
GAVE_WAY: Final = Reason(StreamStatus.CANCELLED, "interrupted")

LEAVES_OUT: Final = "leaves_out"
"""In the payload of a rollback that waits: the turns that it rolls back."""

Attempt = Callable[[int | None, Sequence[str]], Awaitable[None]]
"""Tries T1 at a place in the queue, and says which turns are to be left out of what the model is told from then on."""


@dataclass(frozen=True, slots=True)
class Place:
    """A waiting turn's place, how it waits, and the operation that it asked to give way, if one ran."""

    number: int
    on_busy: OnBusy
    running: Running | None
    left_out: Sequence[str]

    @property
    def makes_way(self) -> bool:
        """Tell whether whatever runs is to give way to it."""
        return self.on_busy != "wait"


async def accept_in_turn(operation: Operation, on_busy: OnBusy, entry: InboundRecord, attempt: Attempt) -> None:
    """Have the turn accepted, now or when it is its turn.

    Raises ConversationBusyError for `reject` and for an interrupting turn that a newer one replaced, and
    RateLimitedError when too many wait; KeyTakenError when its key is in use.
    """
    try:
        await attempt(None, ())
    except ConversationBusyError:
        if on_busy == "reject":
            raise
    else:
        return
    place = await _enqueue(operation, on_busy, entry)
    operation.waits = True
    operation.on_wait()
    try:
        await _wait(operation, place, attempt)
    finally:
        operation.waits = False
        if operation.ring is None:
            # A row that stayed behind would block the queue, so this is tried until it lands.
            await operation.services.database.insist(
                lambda connection: inbound.leave_queue(connection, operation.conversation, operation.id),
                give_up=lambda: operation.services.lease.is_gone(operation.replica),
            )


async def _enqueue(operation: Operation, on_busy: OnBusy, entry: InboundRecord) -> Place:
    longest = operation.services.policy.max_waiting_turns
    makes_way = on_busy != "wait"
    running: Running | None = None
    left_out: list[str] = []
    async with operation.services.database.transaction() as connection:
        await claims.lock_queue(connection, operation.conversation)
        if await _has_started(connection, entry):
            # By a request that came at the same time: it must not make way for itself.
            raise KeyTakenError
        if makes_way:
            running = await claims.ask_to_cancel(connection, operation.conversation)
        if on_busy == "rollback":
            left_out = await _left_out(connection, operation.conversation, running)
            entry = replace(entry, payload={**entry.payload, LEAVES_OUT: left_out})
        number = await inbound.enqueue(connection, entry, replica=operation.replica, at_head=makes_way, longest=longest)
        if number is None:
            # Raised in here, so that what runs was not asked to end for a turn that may not even wait.
            message = f"{longest} turns wait for this conversation already; try again later."
            raise RateLimitedError(message, retry_after=5)
    if running is not None:
        operation.services.cancels.ask(running)
    return Place(number, on_busy, running, left_out)


async def _has_started(connection: Connection, entry: InboundRecord) -> bool:
    """Tell whether the turn's idempotency key names a turn that was accepted already."""
    key = entry.idempotency_key
    return key is not None and await inbound.find_by_key(connection, entry.conversation, entry.kind, key) is not None


async def _left_out(connection: Connection, conversation: UUID, running: Running | None) -> list[str]:
    """Give the turns that are rolled back: the one that runs, and those of a rollback which this one replaces."""
    replaced = await inbound.at_head(connection, conversation)
    left_out: list[str] = list(replaced.payload.get(LEAVES_OUT, ())) if replaced else []
    found = await inbound.find(connection, conversation, running.operation) if running else None
    return [*left_out, found.turn_id] if found else left_out


async def _wait(operation: Operation, place: Place, attempt: Attempt) -> None:
    now = asyncio.get_running_loop().time
    began = now()
    with operation.services.wakeups.watch(free(operation.conversation)) as watch:
        while True:
            seen = watch.changes
            # A waiter waits for a database that is away, too: what its turn has made way for must not be lost.
            with suppress(DatabaseError):
                if await _try(operation, place, attempt):
                    return
                if place.makes_way and now() - began >= PATIENCE_SECONDS:
                    with suppress(UnjudgedError):
                        if place.running is None or not await force_end(operation, place.running):
                            place, began = await _ask_again(operation, place), now()
            await watch.since(seen, LOOK_SECONDS)


async def _ask_again(operation: Operation, place: Place) -> Place:
    """Ask whatever runs now to give way: results may have come for a pause of the operation that was asked before."""
    async with operation.services.database.transaction() as connection:
        running = await claims.ask_to_cancel(connection, operation.conversation)
        found = await inbound.find(connection, operation.conversation, running.operation) if running else None
    if running is not None:
        operation.services.cancels.ask(running)
    left_out = [*place.left_out, found.turn_id] if found is not None and place.on_busy == "rollback" else place.left_out
    return replace(place, running=running, left_out=left_out)


async def _try(operation: Operation, place: Place, attempt: Attempt) -> bool:
    async with operation.services.database.transaction() as connection:
        mine = await inbound.is_next(connection, operation.conversation, operation.id, place.number)
    if mine is None:
        message = "A newer turn that interrupts took the place of this one."
        raise ConversationBusyError(message, stream_id=None)
    if not mine:
        return False
    try:
        await attempt(place.number, place.left_out)
    except ConversationBusyError:
        return False
    return True


async def force_end(operation: Operation, running: Running) -> bool:
    """End an operation that did not give way in time: its fence goes, and its partial text is kept.

    False when it does not run any more.
    """
    services = operation.services
    judged = await judged_partial(services, operation.conversation, running.operation)
    async with services.database.transaction() as connection:
        seized = await claims.seize(connection, operation.conversation, running.operation, only_dead=False)
        entry = await inbound.find(connection, operation.conversation, running.operation)
        if seized is not None and entry is not None:
            await end_seized(connection, services, seized, entry, GAVE_WAY, judged=judged)
    services.wakeups.wake([running.stream_id])
    return seized is not None


def free(conversation: UUID) -> str:
    """Give the name under which waiters of a conversation are woken."""
    return f"free:{conversation.hex}"
