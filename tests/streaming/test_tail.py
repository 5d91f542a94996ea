"""Readers: what is stored, then what runs; through takeovers, outages and erasure; and no frame twice."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy.engine import make_url

from app.domain.errors import MalformedError
from app.domain.turn import StreamStatus
from app.domain.views import Cursor
from app.streaming.frames import OPENING, PING, RETRY, cursor_of, is_end
from app.streaming.outlet import CutError
from app.streaming.ring import PIECE_BYTES
from tests.databases import execute, named
from tests.streaming.scene import PATIENCE, Process, Running, comment, one, process_on, read_all, take, until


@asynccontextmanager
async def database_away(url: str) -> AsyncIterator[None]:
    """Let nobody in, and throw out who is in."""
    name = make_url(url).database or ""
    admin = named(url, "postgres")
    await execute(admin, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
    await execute(admin, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")  # noqa: S608
    try:
        yield
    finally:
        await execute(admin, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


async def replay(process: Process, running: Running, after: Cursor | None = None) -> list[bytes] | None:
    record = await process.record(running.ring.stream_id, running.ring.conversation)
    reader = process.tail.open(record, after, follow=False)
    return None if reader is None else await read_all(reader)


async def test_a_replay_gives_the_same_bytes_as_the_live_reader_had(process: Process, other: Process) -> None:
    running = await process.begin()
    live = asyncio.create_task(read_all(process.reader(running)))
    for text in ("a", "b", "c"):
        running.say(text)
        await asyncio.sleep(0)
        await process.log.flush()
    await running.end()
    frames = await live
    assert [cursor_of(frame).n for frame in frames] == [1, 2, 3, 4]
    assert await replay(other, running) == frames
    assert await replay(process, running, Cursor(running.ring.fence, 2)) == frames[2:]


async def test_a_reader_of_the_process_that_runs_the_operation_ends_without_asking_the_database(
    process: Process,
) -> None:
    running = await process.begin()
    readers = [asyncio.create_task(read_all(process.reader(running))) for _ in range(20)]
    await asyncio.sleep(0)
    running.say("a")
    await running.end()
    assert {len(frames) for frames in await asyncio.gather(*readers)} == {2}
    assert process.tail.reads.made == 0


async def test_readers_elsewhere_share_their_reads(process: Process, other: Process) -> None:
    running = await process.begin()
    running.say("a")
    await process.log.flush()
    readers = [asyncio.create_task(read_all(other.reader(running))) for _ in range(200)]
    stream = running.ring.stream_id
    await until(lambda: stream in other.wakeups._watches and other.wakeups._watches[stream].readers == 200)
    for text in ("b", "c", "d"):
        running.say(text)
        await process.log.flush()
        other.wakeups.wake([stream])
        await asyncio.sleep(0)
    await running.end()
    other.wakeups.wake([stream])
    found = await asyncio.gather(*readers)
    assert {len(frames) for frames in found} == {5}
    assert other.tail.reads.made < 40


async def test_a_change_between_the_look_and_the_wait_is_not_slept_through(
    process: Process, other: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without looks by the clock, a change that was slept through is never found.
    monkeypatch.setattr("app.streaming.tail.POLL_SECONDS", 3600.0)
    monkeypatch.setattr(other.tail, "_heartbeat", 3600.0)
    running = await process.begin()
    reader = other.reader(running)
    for text in "abcdefgh":
        running.say(text)
        reading = asyncio.create_task(one(reader))
        await process.log.flush()
        other.wakeups.wake([running.ring.stream_id])
        async with asyncio.timeout(PATIENCE):
            await reading


async def test_a_reader_goes_on_in_the_database_when_its_operation_was_taken_over(process: Process) -> None:
    running = await process.begin()
    reading = asyncio.create_task(read_all(process.reader(running)))
    running.say("a")
    await process.log.flush()
    running.say("never stored")
    await asyncio.sleep(0)
    fence = await running.seized("ended by another")
    await process.log.flush()
    frames = await reading
    places = [cursor_of(frame) for frame in frames]
    assert places == [
        *(Cursor(running.ring.fence, n) for n in (1, 2)),
        *(Cursor(fence, n) for n in (1, 2)),
    ]
    assert is_end(frames[-1])
    record = await process.record(running.ring.stream_id, running.ring.conversation)
    assert record.fences == {running.ring.fence, fence}
    # Its client comes back with the id of a frame that was never stored.
    assert await replay(process, running, places[1]) == frames[2:]


async def test_a_process_that_may_not_send_gives_its_readers_only_what_is_stored(process: Process) -> None:
    running = await process.begin()
    reader = process.reader(running)
    running.say("a")
    await process.log.flush()
    process.fresh = False
    running.say("held back")
    assert [cursor_of(frame).n for frame in await take(reader, 1)] == [1]
    fence = await running.seized()
    process.wakeups.wake([running.ring.stream_id])
    frames = await read_all(process.reader(running))
    assert [cursor_of(frame) for frame in frames] == [Cursor(running.ring.fence, 1), Cursor(fence, 1)]


async def test_while_the_database_is_away_readers_hear_heartbeats_and_then_the_rest(database: str) -> None:
    async with (
        process_on(database) as process,
        process_on(database, heartbeat=0.2) as other,
    ):
        running = await process.begin()
        running.say("a")
        await process.log.flush()
        reader = other.reader(running)
        assert [cursor_of(frame).n for frame in await take(reader, 1)] == [1]
        async with database_away(database):
            assert await comment(reader) == PING
            assert await comment(reader) == PING
        running.say("b")
        await running.end()
        other.wakeups.wake([running.ring.stream_id])
        assert [cursor_of(frame).n for frame in await read_all(reader)] == [2, 3]


async def test_a_reader_of_an_erased_conversation_is_cut(process: Process) -> None:
    running = await process.begin()
    reader = process.reader(running)
    running.say("a")
    await process.log.flush()
    await anext(reader)
    await running.erase()
    running.ring.lose()
    with pytest.raises(CutError):
        async with asyncio.timeout(PATIENCE):
            await anext(reader)


async def test_a_reader_of_a_long_replay_holds_little_of_it_at_a_time(process: Process, other: Process) -> None:
    running = await process.begin()
    for _ in range(40):
        running.say("x" * 20_000)
        await process.log.flush()
    await running.end()
    ring = running.ring
    _, stored = await other.tail.reads.after(ring.conversation, ring.stream_id, Cursor(ring.fence, 0))
    assert PIECE_BYTES < sum(len(batch.frames) for batch in stored) < 3 * PIECE_BYTES
    frames = await replay(other, running)
    assert frames is not None
    assert [cursor_of(frame).n for frame in frames] == [*range(1, 42)]


async def test_a_replay_says_something_at_once_and_in_every_silence(database: str) -> None:
    async with process_on(database, heartbeat=0.1) as process:
        running = await process.begin()
        record = await process.record(running.ring.stream_id, running.ring.conversation)
        reader = process.tail.open(record, None, follow=False)
        assert reader is not None
        assert await anext(reader) == OPENING
        assert await comment(reader) == PING
        assert await comment(reader) == PING


async def test_a_fence_of_another_stream_is_refused(process: Process) -> None:
    mine, another = await process.begin("mine"), await process.begin("another")
    with pytest.raises(MalformedError):
        await replay(process, mine, Cursor(another.ring.fence, 1))


async def test_nothing_follows_the_last_end_and_a_held_pause_can_be_waited_over(process: Process) -> None:
    running = await process.begin()
    running.say("a")
    await running.end(StreamStatus.PAUSED)
    fence, stream = running.ring.fence, running.ring.stream_id
    record = await process.record(stream, running.ring.conversation)
    assert process.tail.open(record, Cursor(fence, 2), follow=False) is None
    waiting = process.tail.open(record, Cursor(fence, 2), follow=True)
    assert waiting is not None
    reading = asyncio.create_task(read_all(waiting))
    further = await process.begin(stream_id=stream)
    further.say("b")
    await further.end()
    assert [cursor_of(frame) for frame in await reading] == [Cursor(further.ring.fence, n) for n in (1, 2)]
    ended = await process.record(stream, running.ring.conversation)
    assert process.tail.open(ended, Cursor(further.ring.fence, 2), follow=True) is None


async def test_a_replay_reads_on_past_an_end_that_has_a_successor_and_a_posts_reader_does_not(
    process: Process,
) -> None:
    first = await process.begin()
    first.say("a")
    await first.end(StreamStatus.PAUSED)
    second = await process.begin(stream_id=first.ring.stream_id)
    reading = asyncio.create_task(replay(process, first))
    own = await read_all(process.reader(first))
    second.say("b")
    await second.end()
    frames = await reading
    assert frames is not None
    assert [cursor_of(frame).fence for frame in frames] == [first.ring.fence] * 2 + [second.ring.fence] * 2
    assert own == frames[:2]


async def test_before_a_process_goes_its_readers_are_told_when_to_come_back_and_then_cut(process: Process) -> None:
    running = await process.begin()
    local, stored = process.reader(running), process.reader(await process.begin("elsewhere"))
    running.say("a")
    await anext(local)
    waiting = [asyncio.create_task(one(reader)) for reader in (local, stored)]
    await asyncio.sleep(0.05)
    process.tail.hint()
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.gather(*waiting) == [RETRY, RETRY]
    waiting = [asyncio.create_task(one(reader)) for reader in (local, stored)]
    await asyncio.sleep(0)
    process.tail.cut()
    async with asyncio.timeout(PATIENCE):
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(end) for end in ended] == [CutError, CutError]


@pytest.mark.parametrize("seed", range(3))
async def test_a_client_that_drops_at_random_and_comes_back_anywhere_gets_every_frame_once(
    process: Process, other: Process, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - a test's own dice
    running = await process.begin()
    writing = asyncio.create_task(process.log.run())

    async def speak() -> None:
        for number in range(400):
            running.say(f"piece {number}")
            await asyncio.sleep(chance.random() * 0.004)
        await running.end()

    speaking = asyncio.create_task(speak())
    got: list[bytes] = []
    async with asyncio.timeout(30):
        while not (got and is_end(got[-1])):
            at = chance.choice((process, other))
            record = await at.record(running.ring.stream_id, running.ring.conversation)
            reader = at.tail.open(record, cursor_of(got[-1]) if got else None, follow=False)
            assert reader is not None
            got += await take(reader, chance.randrange(1, 120))
            await reader.aclose()
    await speaking
    writing.cancel()
    assert [cursor_of(frame) for frame in got] == [Cursor(running.ring.fence, n) for n in range(1, 402)]
    assert await replay(other, running) == got
