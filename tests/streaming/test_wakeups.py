"""One contract for both wake-up buses: a hint reaches another process, also after a lost connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.store.notify import LARGEST_PAYLOAD, ListenBus, LookBus, payloads
from app.streaming.wakeups import Bus, Wakeups
from tests.databases import execute, rows
from tests.streaming.scene import PATIENCE, Process, until

KINDS = ("pg", "poll")


def bus_of(kind: str, url: str, process: Process) -> Bus:
    return ListenBus(url) if kind == "pg" else LookBus(process.database, interval=0.05)


@asynccontextmanager
async def running_wakeups(bus: Bus) -> AsyncIterator[Wakeups]:
    wakeups = Wakeups(bus)
    task = asyncio.create_task(wakeups.run())
    try:
        yield wakeups
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def two(kind: str, url: str, a: Process, b: Process) -> AsyncIterator[tuple[Wakeups, Wakeups]]:
    """Run the wake-ups of two processes; both hear each other."""
    async with running_wakeups(bus_of(kind, url, a)) as here, running_wakeups(bus_of(kind, url, b)) as there:
        if kind == "pg":
            await listening(url, 2)
        yield here, there


async def listening(url: str, count: int) -> None:
    query = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
    async with asyncio.timeout(PATIENCE):
        while (await rows(url, query))[0]["n"] < count:  # noqa: ASYNC110 - the state is the database's
            await asyncio.sleep(0.02)


async def settled(wakeups: Wakeups, stream_id: str) -> None:
    """Let the first wake-ups pass: those of a new connection, and of a first look."""
    with wakeups.watch(stream_id) as watch:
        while await watch.since(watch.changes, 0.2):
            pass


@pytest.mark.parametrize("kind", KINDS)
async def test_a_hint_reaches_another_process(kind: str, database: str, process: Process, other: Process) -> None:
    running = await process.begin()
    stream = running.ring.stream_id
    async with two(kind, database, process, other) as (here, there):
        with there.watch(stream) as watch:
            await settled(there, stream)
            for text in "abc":
                seen = watch.changes
                running.say(text)
                await process.log.flush()
                here.wake([stream])
                assert await watch.since(seen, PATIENCE)


@pytest.mark.parametrize("kind", KINDS)
async def test_nobody_is_woken_while_nothing_grows(kind: str, database: str, process: Process, other: Process) -> None:
    running = await process.begin()
    async with two(kind, database, process, other) as (_, there):
        with there.watch(running.ring.stream_id) as watch:
            async with asyncio.timeout(PATIENCE):
                while await watch.since(watch.changes, 0.5):
                    pass  # the wake-ups of new connections and first looks


@pytest.mark.parametrize("kind", KINDS)
async def test_an_end_is_told(kind: str, database: str, process: Process, other: Process) -> None:
    running = await process.begin()
    stream = running.ring.stream_id
    async with two(kind, database, process, other) as (here, there):
        with there.watch(stream) as watch:
            await settled(there, stream)
            seen = watch.changes
            await running.end()
            here.wake([stream])
            assert await watch.since(seen, PATIENCE)


@pytest.mark.parametrize("kind", KINDS)
async def test_hints_come_again_after_every_connection_was_lost(
    kind: str, database: str, process: Process, other: Process
) -> None:
    running = await process.begin()
    stream = running.ring.stream_id
    async with two(kind, database, process, other) as (here, there):
        with there.watch(stream) as watch:
            await settled(there, stream)
            seen = watch.changes
            await execute(
                database,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
            if kind == "pg":
                # What was missed meanwhile is made good: a new connection wakes everybody.
                assert await watch.since(seen, PATIENCE)
                await listening(database, 2)
                await settled(there, stream)
            seen = watch.changes
            running.say("a")
            await process.log.flush()
            here.wake([stream])
            assert await watch.since(seen, PATIENCE)


@pytest.mark.parametrize("kind", KINDS)
async def test_many_streams_are_told_at_once(kind: str, database: str, process: Process, other: Process) -> None:
    many = [await process.begin(f"chat-{number}") for number in range(40)]
    async with two(kind, database, process, other) as (here, there):
        watches = [there.watch(running.ring.stream_id) for running in many]
        opened = [watch.__enter__() for watch in watches]
        await settled(there, many[0].ring.stream_id)
        seen = [watch.changes for watch in opened]
        for running in many:
            running.say("a")
        await process.log.flush()
        here.wake([running.ring.stream_id for running in many])
        told = [watch.since(changes, PATIENCE) for watch, changes in zip(opened, seen, strict=True)]
        assert all(await asyncio.gather(*told))
        for watch in watches:
            watch.__exit__(None, None, None)


def test_names_are_put_into_few_payloads_and_none_is_too_large() -> None:
    names = [f"st_{number:044d}" for number in range(1000)]
    told = list(payloads(names))
    assert [name for payload in told for name in payload.split(",")] == names
    assert all(len(payload) <= LARGEST_PAYLOAD for payload in told)
    assert len(told) == 7


async def test_one_notification_tells_of_all_that_one_flush_wrote(database: str, process: Process) -> None:
    heard: list[str] = []

    class Ear:
        async def announce(self, stream_ids: list[str]) -> None:
            heard.append(",".join(stream_ids))

        async def run(self, *_: object) -> None:
            await asyncio.get_running_loop().create_future()

    async with running_wakeups(Ear()) as wakeups:  # type: ignore[arg-type]
        wakeups.wake(["a", "b"])
        wakeups.wake(["c"])
        wakeups.wake(["a"])
        await until(lambda: bool(heard))
    assert heard == ["a,b,c"]


async def test_a_change_before_the_wait_counts(database: str, process: Process) -> None:
    wakeups = process.wakeups
    with wakeups.watch("st") as watch:
        seen = watch.changes
        wakeups.wake(["st"])
        assert await watch.since(seen, 0.001)
        assert not await watch.since(watch.changes, 0.001)
    assert wakeups._watches == {}
