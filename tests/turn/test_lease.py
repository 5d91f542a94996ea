"""The lease: when a process may act, and when it may judge others dead."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from app.domain.ids import fresh_uuid
from app.domain.policy import LeasePolicy
from app.store import replicas
from app.store.database import Database
from app.streaming.ring import Ring, Rings
from app.turn.orchestrator.lease import Lease
from tests.databases import execute, rows

POLICY = LeasePolicy(renew=3.0, length=10.0)


class Watch:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> datetime:
        return datetime.now(UTC)

    def boot_seconds(self) -> float:
        return self.seconds


@pytest.fixture
async def store(database: str) -> AsyncIterator[Database]:
    made = Database(database, pool_size=2)
    yield made
    await made.close()


async def leased(store: Database) -> tuple[Lease, Watch]:
    watch = Watch()
    lease = Lease(store, watch, POLICY, rings=Rings())
    await lease.start()
    return lease, watch


def may_act(lease: Lease) -> bool:
    return lease.is_fresh


async def test_past_its_own_deadline_a_process_waits_until_a_renewal_has_landed(store: Database) -> None:
    lease, watch = await leased(store)
    assert may_act(lease)
    watch.seconds += 10
    assert not may_act(lease)
    waiting = asyncio.create_task(lease.until_fresh())
    await asyncio.sleep(0)
    assert not waiting.done()
    await lease._renew()
    async with asyncio.timeout(30):
        await waiting
    assert may_act(lease)


async def test_only_a_whole_lease_of_unbroken_contact_lets_a_process_judge_others(store: Database) -> None:
    lease, watch = await leased(store)
    assert not lease.may_take_over()
    for _ in range(4):
        watch.seconds += 3
        await lease._renew()
    assert lease.may_take_over()
    # The machine slept: every replica slept with it, and none could renew.
    watch.seconds += 3600
    assert not lease.may_take_over()
    await lease._renew()
    assert not lease.may_take_over()
    for _ in range(4):
        watch.seconds += 3
        await lease._renew()
    assert lease.may_take_over()


async def test_a_process_that_was_declared_dead_drops_what_it_runs_and_begins_anew(
    store: Database, database: str
) -> None:
    lease, _ = await leased(store)
    old = lease.id
    lost: list[Any] = []
    ring = Ring(UUID(int=1), "st", 7)
    ring.on_lost = lambda: lost.append(ring)
    lease._rings.open(ring)
    await execute(database, "UPDATE replicas SET dead = true")
    await lease._renew()
    assert lease.id != old
    assert lease.is_gone(old)
    assert lost == [ring]
    assert [row["id"] for row in await rows(database, "SELECT id FROM replicas WHERE NOT dead")] == [lease.id]


async def test_a_database_that_is_younger_than_a_lease_marks_nobody_dead(store: Database) -> None:
    expired = fresh_uuid()
    async with store.transaction() as connection:
        await replicas.register(connection, expired, timedelta(seconds=-1))
        assert await replicas.mark_expired(connection, timedelta(days=365)) == []
        assert await replicas.mark_expired(connection, timedelta(0)) == [expired]
        assert not await replicas.renew(connection, expired, timedelta(seconds=10))


async def test_leaving_lets_others_take_over_at_once(store: Database, database: str) -> None:
    lease, _ = await leased(store)
    await lease.leave()
    assert [row["dead"] for row in await rows(database, "SELECT dead FROM replicas")] == [True]
