"""The log writer on a real Postgres: what is written, under which fence, and what a lost answer changes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from app.domain.errors import DatabaseError
from app.domain.views import Cursor
from app.store.database import Connection, Database
from app.store.events import Flushed, StoredBatch, flush, read_after
from app.streaming.frames import split
from app.streaming.log import STATEMENT_BYTES
from app.streaming.ring import LostFenceError
from tests.databases import execute, rows
from tests.streaming.scene import PATIENCE, Process, Running, process_on, read_all, until

STORED = "SELECT fence, first_n, last_n, frames FROM stream_events WHERE stream_id = $1 ORDER BY fence, first_n"


async def stored(url: str, running: Running) -> list[tuple[int, int, int]]:
    found = await rows(url, STORED, running.ring.stream_id)
    return [(row["fence"], row["first_n"], row["last_n"]) for row in found]


@asynccontextmanager
async def held_by_another(url: str, running: Running) -> AsyncIterator[asyncpg.Connection]:
    """Hold the conversation's row in another transaction, as T1, T2 and takeovers do."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT 1 FROM conversations WHERE id = $1 FOR UPDATE", running.ring.conversation)
            yield connection
    finally:
        await connection.close()


async def blocks_another(url: str, holder: asyncpg.Connection) -> None:
    """Wait until a session waits for what the holder has locked. A transaction would see one state of that for ever."""
    query = "SELECT 1 FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))"
    async with asyncio.timeout(PATIENCE):
        while not await rows(url, query, holder.get_server_pid()):  # noqa: ASYNC110 - the state is the database's
            await asyncio.sleep(0.01)


async def test_one_flush_stores_the_new_frames_of_all_streams(process: Process, database: str) -> None:
    first, second = await process.begin("one"), await process.begin("two")
    first.say("a", "b")
    second.say("c")
    await process.log.flush()
    first.say("d")
    await process.log.flush()
    assert await stored(database, first) == [(first.ring.fence, 1, 2), (first.ring.fence, 3, 3)]
    assert await stored(database, second) == [(second.ring.fence, 1, 1)]
    assert first.ring.durable_n == 3


async def test_a_statement_takes_a_bounded_amount_and_the_flush_goes_on_with_the_next(
    process: Process, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    async def counted(store: Database, batches: Sequence[StoredBatch]) -> list[Flushed]:
        sizes.append(sum(len(batch.frames) for batch in batches))
        return await flush(store, batches)

    monkeypatch.setattr("app.streaming.log.flush", counted)
    running = [await process.begin(f"chat {n}") for n in range(5)]
    for each in running:
        each.say("a" * (STATEMENT_BYTES // 2))
    await process.log.flush()
    assert len(sizes) == 3
    assert max(sizes) < 1.1 * STATEMENT_BYTES
    assert [await stored(database, each) for each in running] == [[(each.ring.fence, 1, 1)] for each in running]


async def test_a_zombies_frame_is_refused_once_the_fence_is_higher(process: Process, database: str) -> None:
    running = await process.begin()
    running.say("before")
    await process.log.flush()
    running.say("too late")
    fence = await running.seized("ended")
    await process.log.flush()
    assert running.ring.lost
    assert await stored(database, running) == [(running.ring.fence, 1, 1), (fence, 1, 2)]


async def test_a_stream_whose_row_is_held_goes_with_the_next_flush_and_delays_no_other(
    process: Process, database: str
) -> None:
    held, free = await process.begin("held"), await process.begin("free")
    held.say("a")
    free.say("b")
    async with held_by_another(database, held):
        await process.log.flush()
        assert await stored(database, free) == [(free.ring.fence, 1, 1)]
        assert await stored(database, held) == []
        assert (held.ring.durable_n, held.ring.lost) == (0, False)
        held.say("c")
    await process.log.flush()
    await process.log.flush()
    assert await stored(database, held) == [(held.ring.fence, 1, 1), (held.ring.fence, 2, 2)]


async def test_what_settles_is_stored_behind_a_batch_that_was_skipped_as_well(process: Process, database: str) -> None:
    running = await process.begin()
    running.say("a")
    async with held_by_another(database, running):
        await process.log.flush()
        running.say("b")
    await process.log.settle()
    assert await stored(database, running) == [(running.ring.fence, 1, 1), (running.ring.fence, 2, 2)]


async def test_a_stream_whose_row_stays_held_keeps_nobody_who_settles(process: Process, database: str) -> None:
    held, free = await process.begin("held"), await process.begin("free")
    held.say("a")
    free.say("b")
    async with held_by_another(database, held), asyncio.timeout(PATIENCE):
        await process.log.settle()
    assert (held.ring.durable_n, free.ring.durable_n) == (0, 1)


async def test_a_takeover_that_is_not_committed_yet_lets_no_frame_slip_in_behind_it(
    process: Process, database: str
) -> None:
    running = await process.begin()
    running.say("late")
    async with held_by_another(database, running) as takeover:
        await takeover.execute(
            "UPDATE conversations SET fence = nextval('fences') WHERE id = $1", running.ring.conversation
        )
        # Both are inside: the higher fence is written and not committed, and the flush runs to its end.
        await process.log.flush()
        assert running.ring.durable_n == 0
    await process.log.flush()
    assert running.ring.lost
    assert await stored(database, running) == []


async def test_a_takeover_waits_for_a_flush_in_flight_and_then_sees_its_frames(process: Process, database: str) -> None:
    running = await process.begin()
    flusher = await asyncpg.connect(database)
    try:
        in_flight = flusher.transaction()
        await in_flight.start()
        await flusher.fetch(
            "SELECT fence FROM conversations WHERE id = $1 FOR SHARE SKIP LOCKED", running.ring.conversation
        )
        taking = asyncio.create_task(running.seized("ended"))
        await blocks_another(database, flusher)
        await flusher.execute(
            "INSERT INTO stream_events VALUES ($1, $2, $3, 1, 1, $4)",
            *(running.ring.conversation, running.ring.stream_id, running.ring.fence, running.frame("a")),
        )
        assert not taking.done()
        await in_flight.commit()
        fence = await taking
    finally:
        await flusher.close()
    assert await stored(database, running) == [(running.ring.fence, 1, 1), (fence, 1, 2)]


class Forgetful(Database):
    """A database whose next answers get lost after the statement has landed."""

    lose = 0

    @asynccontextmanager
    async def driver(self) -> AsyncIterator[Any]:
        async with super().driver() as connection:
            yield connection
            if self.lose:
                self.lose -= 1
                raise ConnectionResetError


async def test_a_batch_of_unknown_outcome_is_written_again_unchanged_and_stored_once(database: str) -> None:
    forgetful = Forgetful(database, pool_size=2)
    process = Process(forgetful)
    try:
        running = await process.begin()
        running.say("a", "b")
        forgetful.lose = 2
        for text in ("c", "d"):
            with pytest.raises(ConnectionResetError):
                await process.log.flush()
            assert running.ring.durable_n == 0
            running.say(text)
        await process.log.flush()
        await process.log.flush()
    finally:
        await forgetful.close()
    assert await stored(database, running) == [(running.ring.fence, 1, 2), (running.ring.fence, 3, 4)]


async def test_the_last_transaction_takes_along_a_batch_of_unknown_outcome(database: str) -> None:
    forgetful = Forgetful(database, pool_size=2)
    process = Process(forgetful)
    try:
        running = await process.begin()
        running.say("a")
        forgetful.lose = 1
        with pytest.raises(ConnectionResetError):
            await process.log.flush()
        running.say("b")
        await running.end()
    finally:
        await forgetful.close()
    fence = running.ring.fence
    assert await stored(database, running) == [(fence, 1, 1), (fence, 2, 2), (fence, 3, 3)]


async def test_the_last_transaction_waits_for_a_flush_in_flight_and_stores_the_rest_once(
    process: Process, database: str
) -> None:
    running = await process.begin()
    lock = await asyncpg.connect(database)
    try:
        barrier = lock.transaction()
        await barrier.start()
        await lock.execute("LOCK TABLE stream_events IN ACCESS EXCLUSIVE MODE")
        running.say("a", "b")
        flushing = asyncio.create_task(process.log.flush())
        await blocks_another(database, lock)
        running.say("c")
        ending, sealing = asyncio.create_task(running.end()), asyncio.create_task(process.log.seal(running.ring))
        await asyncio.sleep(0)
        assert running.ring.sealed
        assert not sealing.done()
        assert not flushing.done()
        await barrier.commit()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(flushing, ending, sealing)
    finally:
        await lock.close()
    fence = running.ring.fence
    assert await stored(database, running) == [(fence, 1, 2), (fence, 3, 3), (fence, 4, 4)]


async def test_a_ring_that_its_operation_has_sealed_or_lost_is_not_written(process: Process, database: str) -> None:
    running = await process.begin()
    running.say("a")
    await process.log.seal(running.ring)
    await process.log.flush()
    assert await stored(database, running) == []
    running.ring.sealed = False
    running.ring.lose()
    await process.log.flush()
    assert await stored(database, running) == []
    with pytest.raises(LostFenceError):
        await process.log.seal(running.ring)


async def test_a_stream_whose_content_the_database_refuses_delays_no_other(process: Process, database: str) -> None:
    poisoned, sound = await process.begin("poisoned"), await process.begin("sound")
    await execute(
        database,
        f"ALTER TABLE stream_events ADD CONSTRAINT no_poison CHECK (stream_id <> '{poisoned.ring.stream_id}')",
    )
    poisoned.say("a")
    sound.say("b")
    await process.log.flush()
    assert await stored(database, sound) == [(sound.ring.fence, 1, 1)]
    assert (poisoned.ring.durable_n, poisoned.ring.last_n) == (0, 1)
    sound.say("c")
    await process.log.flush()
    assert sound.ring.durable_n == 2
    await execute(database, "ALTER TABLE stream_events DROP CONSTRAINT no_poison")
    poisoned.ring.retry_at = 1e-9
    await process.log.flush()
    assert await stored(database, poisoned) == [(poisoned.ring.fence, 1, 1)]


async def test_the_log_goes_on_after_the_server_has_closed_every_connection(process: Process, database: str) -> None:
    running = await process.begin()
    writing = asyncio.create_task(process.log.run())
    try:
        running.say("a")
        await until(lambda: running.ring.durable_n == 1)
        await execute(
            database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        running.say("b")
        await until(lambda: running.ring.durable_n == 2)
    finally:
        writing.cancel()
    await running.end()
    assert await read_all(process.reader(running)) == list(
        split(b"".join(row["frames"] for row in await rows(database, STORED, running.ring.stream_id)))
    )


async def test_frames_for_a_conversation_that_was_erased_are_lost(process: Process) -> None:
    running = await process.begin()
    running.say("a")
    await running.erase()
    batch = running.ring.next_batch()
    assert batch is not None
    assert await flush(process.database, [batch]) == [Flushed.LOST]


async def test_a_read_starts_inside_the_batch_in_which_the_cursor_stands(process: Process) -> None:
    running = await process.begin()
    running.say("a", "b", "c")
    await process.log.flush()
    running.say("d")
    await process.log.flush()
    ring = running.ring

    async def batches(n: int, **more: Any) -> list[int]:
        async with process.database.transaction() as connection:
            found = await read_after(
                connection, ring.conversation, ring.stream_id, Cursor(ring.fence, n), limit=10, **more
            )
        return [batch.first_n for batch in found]

    assert await batches(0) == [1, 4]
    assert await batches(2) == [1, 4]
    assert await batches(3) == [4]
    assert await batches(4) == []
    assert await batches(0, most_bytes=1) == [1]


async def test_a_transaction_that_never_got_to_its_commit_is_given_up_with_nothing_done(database: str) -> None:
    async with process_on(database) as process:
        await execute(database, "ALTER TABLE conversations RENAME TO hidden")

        async def work(connection: Connection) -> bool:
            raise ConnectionResetError

        async def landed(connection: Connection) -> bool | None:
            raise AssertionError("no commit was tried, so nothing needs to be asked")

        with pytest.raises(DatabaseError):
            await process.database.land(work, landed, give_up=lambda: False, patience=0.2)
