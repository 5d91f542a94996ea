"""Frames that go out where they are said: at once, in order, each of them once, whatever the socket does."""

import asyncio
import random
from collections.abc import AsyncGenerator

import pytest

from app.streaming import tail
from app.streaming.frames import cursor_of
from app.streaming.outlet import Outlet, Reader
from app.streaming.ring import FEW_READERS
from app.streaming.tail import _Passing
from tests.streaming.scene import Process, Running, Socket, read_all, until


def waiting(running: Running) -> int:
    """How many readers wait for what the operation says."""
    return len(running.ring._takers) + len(running.ring._bell)


def passing_of(running: Running) -> _Passing:
    """Give what lets frames pass to the one reader."""
    (passing,) = running.ring._takers
    assert isinstance(passing, _Passing)
    return passing


async def serving(running: Running, socket: Socket, readers: int = 1) -> asyncio.Task[None]:
    """Serve a reader that has all there is, which is so far nothing."""
    task = asyncio.create_task(socket.serve(running.process.reader(running)))
    await until(lambda: waiting(running) == readers)
    return task


@pytest.fixture(autouse=True)
def none_is_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every frame go out by itself, however quickly the tests say the next one."""
    monkeypatch.setattr(tail, "CLOSE_SECONDS", 0.0)


async def test_a_frame_is_at_the_socket_when_it_has_been_said(process: Process) -> None:
    running, socket = await process.begin(), Socket()
    reading = await serving(running, socket)
    running.say("a", "b")
    assert len(socket.frames) == 2
    await running.end()
    await reading
    record = await process.record(running.ring.stream_id, running.ring.conversation)
    assert socket.frames == await read_all(process.tail.open(record, None, follow=False))


async def test_frames_that_come_close_behind_another_go_out_together(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "CLOSE_SECONDS", 3600.0)
    running, socket = await process.begin(), Socket()
    reading = await serving(running, socket)
    passing_of(running)._sent_at -= 7200
    running.say("a", "b", "c", "d")
    assert len(socket.taken) == 1
    await until(lambda: len(socket.frames) == 4)
    assert len(socket.taken) == 2
    await running.end()
    await reading


async def test_what_is_said_behind_frames_that_are_stored_already_does_not_overtake_them(process: Process) -> None:
    running, socket = await process.begin(), Socket()
    reading = await serving(running, socket)
    running.ring.append_durable([running.frame("a"), running.frame("b", 2)])
    running.say("c")
    await until(lambda: len(socket.frames) == 3)
    assert [cursor_of(frame).n for frame in socket.frames] == [1, 2, 3]
    reading.cancel()
    await asyncio.wait((reading,))


async def test_a_socket_that_takes_no_more_holds_up_nobody_and_misses_nothing(process: Process) -> None:
    running, slow, quick = await process.begin(), Socket(), Socket()
    readings = [await serving(running, slow), await serving(running, quick, 2)]
    slow.free.clear()
    running.say("a")
    await until(lambda: waiting(running) == 1)
    running.say("b", "c")
    assert [len(slow.frames), len(quick.frames)] == [1, 3]
    await running.end()
    slow.free.set()
    await asyncio.gather(*readings)
    assert slow.frames == quick.frames
    assert len(slow.frames) == 4


async def test_a_socket_that_fails_ends_its_reader_and_not_the_operation(process: Process) -> None:
    running, broken = await process.begin(), Socket()
    reading = await serving(running, broken)
    broken.failure = ValueError("no such socket")
    running.say("a", "b")
    with pytest.raises(ValueError, match="no such socket"):
        await reading
    assert (running.ring.last_n, waiting(running)) == (2, 0)
    await running.end()


async def test_a_reader_that_is_ended_takes_nothing_more(process: Process) -> None:
    running, waits, slow = await process.begin(), Socket(), Socket()
    reading, hanging = await serving(running, waits), await serving(running, slow, 2)
    slow.free.clear()
    running.say("a")
    for task in (reading, hanging):
        task.cancel()
    await asyncio.wait((reading, hanging))
    running.say("b")
    assert (len(waits.frames), len(slow.frames), waiting(running)) == (1, 1, 0)
    await running.end()


async def test_a_process_without_its_lease_lets_nothing_pass(process: Process) -> None:
    running, socket = await process.begin(), Socket()
    reading = await serving(running, socket)
    process.fresh = False
    running.say("a")
    assert socket.frames == []
    await process.log.flush()
    await until(lambda: len(socket.frames) == 1)
    process.fresh = True
    await running.end()
    await reading
    assert len(socket.frames) == 2


async def test_what_passes_puts_the_heartbeat_off(process: Process) -> None:
    running, socket = await process.begin(), Socket()
    reading = await serving(running, socket)
    passing = passing_of(running)
    passing._sent_at -= 3600
    assert passing.seconds_left < 0
    running.say("a")
    assert passing.seconds_left > 0
    await running.end()
    await reading


async def test_more_readers_than_a_frame_is_handed_to_get_all_of_it_too(process: Process) -> None:
    running = await process.begin()
    sockets = [Socket() for _ in range(FEW_READERS + 10)]
    readings = [await serving(running, socket, count) for count, socket in enumerate(sockets, start=1)]
    running.say("a")
    assert [len(socket.frames) for socket in sockets].count(1) == FEW_READERS
    await running.end()
    await asyncio.gather(*readings)
    assert {len(socket.frames) for socket in sockets} == {2}


@pytest.mark.parametrize("seed", range(20))
async def test_every_reader_gets_every_frame_once_and_in_order(process: Process, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    running = await process.begin()
    sockets = [Socket() for _ in range(5)]
    readings: list[asyncio.Task[None]] = []
    for _ in range(120):
        match chance.randrange(6):
            case 0 if len(readings) < len(sockets):
                reader = process.reader(running)
                readings.append(asyncio.create_task(sockets[len(readings)].serve(reader)))
            case 1:
                chance.choice(sockets).free.clear()
            case 2:
                chance.choice(sockets).free.set()
            case 3:
                await process.log.flush()
            case 4:
                await asyncio.sleep(0)
            case _:
                running.say(*(str(chance.random()) for _ in range(chance.randrange(1, 4))))
    for socket in sockets:
        socket.free.set()
    await running.end()
    await asyncio.gather(*readings)
    whole = await read_all(process.reader(running))
    assert len(whole) == running.ring.last_n
    assert all(socket.frames == whole for socket, _ in zip(sockets, readings, strict=False))


async def test_what_was_begun_is_finished_or_given_up_as_a_whole() -> None:
    steps: list[str] = []
    free = asyncio.Event()

    async def send(piece: bytes) -> None:
        steps.append(f"begun {piece.decode()}")
        try:
            await free.wait()
            await asyncio.sleep(0)
            steps.append(f"sent {piece.decode()}")
        finally:
            steps.append("over")

    outlet = Outlet()
    outlet.open(send)
    assert not outlet.write(b"a")
    assert (outlet.waits, outlet.is_open) == (True, False)
    finishing = asyncio.create_task(outlet.finish())
    await asyncio.sleep(0)
    free.set()
    await finishing
    assert steps == ["begun a", "sent a", "over"]
    free.clear()
    assert not outlet.write(b"b")
    finishing = asyncio.create_task(outlet.finish())
    await asyncio.sleep(0)
    finishing.cancel()
    await asyncio.wait((finishing,))
    assert finishing.cancelled()
    assert steps[3:] == ["begun b", "over"]
    assert outlet.is_open


async def test_an_outlet_that_nobody_has_opened_is_closed() -> None:
    async def none() -> AsyncGenerator[bytes, None]:
        pieces: tuple[bytes, ...] = ()
        for piece in pieces:
            yield piece

    outlet = Outlet()
    assert not outlet.is_open
    with pytest.raises(RuntimeError):
        outlet.write(b"a")
    assert [piece async for piece in Reader(none(), outlet)] == []
