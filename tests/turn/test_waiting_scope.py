"""Waiting is a matter of one conversation: turns of others never stand behind its queue."""

import asyncio

from app.providers.scripted import Hold
from tests.requirements import requirement
from tests.stage import Stage, turn_input


@requirement("R213")
async def test_a_turn_is_not_held_up_by_turns_that_wait_for_another_conversation(stage: Stage) -> None:
    hold = Hold()
    stage.provider.add([hold, "First."], "Elsewhere.", "Second.")
    first = await stage.runtime.start_turn(turn_input("One", conversation="busy"))
    waiting = asyncio.create_task(stage.runtime.start_turn(turn_input("Two", conversation="busy", on_busy="wait")))
    await _queue_holds(stage, 1)

    await stage.play("Hello", conversation="elsewhere")

    hold.release()
    async with asyncio.timeout(30):
        second = await waiting
    assert second.fence > first.fence
    assert [content for _, content in await stage.said("elsewhere")] == ["Hello", "Elsewhere."]


async def _queue_holds(stage: Stage, number: int) -> None:
    """Wait until that many turns wait in the database."""
    async with asyncio.timeout(30):
        while True:
            async with stage.runtime._services.database.driver() as connection:
                waiting = await connection.fetchval("SELECT count(*) FROM inbound_messages WHERE status = 'waiting'")
            if waiting == number:
                return
            await asyncio.sleep(0.01)
