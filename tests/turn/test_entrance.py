"""The entrance: operations that begin at once pass it a few at a time, and none keeps the others for long."""

import asyncio

import pytest

from app.turn.facade import entrance
from app.turn.facade.entrance import AT_ONCE, Entrance
from tests.stage import Stage, running_stage, turn_input
from tests.streaming.scene import until

PATIENCE = 20


class Guests:
    """Tasks that pass an entrance and stay inside until they may go."""

    def __init__(self, way: Entrance) -> None:
        self.way, self.inside, self.leave = way, list[int](), asyncio.Event()

    async def come(self, number: int) -> None:
        async with self.way.passing():
            self.inside.append(number)
            await self.leave.wait()


async def test_so_many_pass_at_once_and_the_others_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrance, "SECONDS", 3600)
    guests = Guests(Entrance())
    coming = [asyncio.create_task(guests.come(number)) for number in range(AT_ONCE + 5)]
    await until(lambda: len(guests.inside) == AT_ONCE)
    assert guests.way._room.locked()
    coming[AT_ONCE].cancel()  # who waits no more takes no room
    guests.leave.set()
    await asyncio.wait_for(asyncio.gather(*coming, return_exceptions=True), PATIENCE)
    assert guests.inside == [number for number in range(AT_ONCE + 5) if number != AT_ONCE]
    assert guests.way._room._value == AT_ONCE


async def test_who_stays_too_long_keeps_nobody_and_leaves_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrance, "SECONDS", 0.01)
    guests = Guests(Entrance())
    coming = [asyncio.create_task(guests.come(number)) for number in range(AT_ONCE + 5)]
    await until(lambda: len(guests.inside) == AT_ONCE + 5)
    await until(lambda: guests.way._room._value == AT_ONCE)
    guests.leave.set()
    await asyncio.wait_for(asyncio.gather(*coming), PATIENCE)
    assert guests.way._room._value == AT_ONCE


async def test_an_operation_begins_when_there_is_room_and_leaves_it_when_it_is_accepted(
    shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entrance, "AT_ONCE", 1)
    monkeypatch.setattr(entrance, "SECONDS", 3600)
    async with running_stage(shared_database) as stage:
        stage.provider.add("One.", "Two.")
        room = stage.runtime._entrance._room
        async with stage.runtime._entrance.passing():
            playing = asyncio.create_task(stage.play("Hello."))
            await until(lambda: bool(room._waiters))
            assert await conversations(stage) == 0
        assert (await asyncio.wait_for(playing, PATIENCE))[-1]["final_response_text"] == "One."
        await stage.runtime.start_turn(turn_input("Again."))
        assert room._value == 1


async def conversations(stage: Stage) -> int:
    async with stage.runtime._services.database.statement() as connection:
        return int(await connection.driver.fetchval("SELECT count(*) FROM conversations"))
