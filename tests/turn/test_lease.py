"""The lease: when a process may act, and when it may judge others dead."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from app.domain.clock import SystemClock
from app.domain.ids import fresh_uuid
from app.domain.policy import LeasePolicy
from app.store import replicas
from app.store.database import Database
from app.streaming.ring import Ring, Rings
from app.turn.orchestrator.lease import Lease
from tests.databases import execute, rows
from tests.stage import running_stage

POLICY = LeasePolicy(renew=3.0, length=10.0)
OLD_ENOUGH = "SELECT 1 WHERE pg_postmaster_start_time() < now() - interval '2 s'"


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
    return lease.holds()


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


async def test_the_deadline_is_counted_from_before_the_heartbeat_that_landed(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch()
    lease = Lease(store, watch, POLICY, rings=Rings())
    for name, beat in (("register", lease.start), ("renew", lease._renew)):
        landing = getattr(replicas, name)

        async def slow(*given: Any, landing: Any = landing) -> Any:
            watch.seconds += 4
            return await landing(*given)

        with monkeypatch.context() as patch:
            patch.setattr(replicas, name, slow)
            await beat()
        watch.seconds += 5.9
        assert may_act(lease)
        watch.seconds += 0.1
        assert not may_act(lease)


async def test_a_heartbeat_that_fails_breaks_the_contact(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = Lease(store, Watch(), LeasePolicy(renew=0.01, length=10.0), rings=Rings())
    await lease.start()

    def is_unbroken() -> bool:
        return lease.contact_since is not None

    async def fails() -> None:
        raise ConnectionResetError

    assert is_unbroken()

    monkeypatch.setattr(lease, "_renew", fails)
    renewing = asyncio.create_task(lease.run())
    async with asyncio.timeout(30):
        while is_unbroken():  # noqa: ASYNC110 - what the task notes
            await asyncio.sleep(0.01)
    renewing.cancel()


async def test_a_heartbeat_waits_for_no_request_and_for_no_lock_longer_than_its_period(
    store: Database, database: str
) -> None:
    lease = Lease(store, Watch(), LeasePolicy(renew=1.0, length=10.0), rings=Rings())
    await lease.start()
    async with store.transaction(), store.transaction():  # all connections that requests can have
        await lease._renew()
    async with store.transaction() as connection:
        await connection.driver.execute("SELECT 1 FROM replicas FOR UPDATE")
        with pytest.raises(TimeoutError):
            await lease._renew()


async def test_only_a_process_in_unbroken_contact_marks_others_dead(database: str) -> None:
    async with running_stage(database, lease_seconds=2.0, lease_renew_seconds=0.5) as stage:
        stage.runtime._lifecycle._sweeping.cancel()
        lease, takeover = stage.runtime._services.lease, stage.runtime._lifecycle._takeover
        overdue = "INSERT INTO replicas (id, expires_at) VALUES (gen_random_uuid(), now() - interval '1 minute')"
        await execute(database, overdue)

        async def is_marked(since: float | None) -> bool:
            lease.contact_since = since
            await takeover.sweep(no_rerun)
            return bool(await rows(database, "SELECT 1 FROM replicas WHERE dead"))

        async with asyncio.timeout(30):
            # A database that is younger than a lease marks nobody either.
            while not await rows(database, OLD_ENOUGH):  # noqa: ASYNC110 - a state of the server
                await asyncio.sleep(0.1)
        assert not await is_marked(None)
        assert await is_marked(0.0)


def no_rerun(_: Any) -> Any:
    raise AssertionError


def test_deadlines_go_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = {time.CLOCK_MONOTONIC: 1000.0, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC): 5000.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    assert SystemClock().boot_seconds() == 5000.0


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
