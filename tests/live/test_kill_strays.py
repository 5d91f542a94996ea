"""An operation whose end can't be written, or whose task has gone, is ended by the process that is left with it."""

import asyncio
from typing import Any

from app.providers.scripted import Hold
from tests.databases import execute, rows
from tests.stage import Stage, one, running_stage, types

SECONDS = 30.0
QUICK: dict[str, Any] = {"lease_seconds": 2.0, "lease_renew_seconds": 0.5}
BROKEN = """
CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken on purpose'; END $$;
CREATE TRIGGER broken BEFORE {what} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION broken()
"""
RUNNING = "SELECT 1 FROM conversations WHERE running_operation IS NOT NULL"
WAITING = "SELECT 1 FROM inbound_messages WHERE status = 'waiting'"
AN_END = "position('event: end'::bytea in NEW.frames) > 0"


async def break_down(database: str, what: str, when: str = "true") -> None:
    await execute(database, BROKEN.format(what=what, when=when))


async def mend(database: str, table: str) -> None:
    await execute(database, f"DROP TRIGGER broken ON {table}")


async def until(database: str, query: str, *values: object) -> None:
    """Wait until the query gives a row."""
    async with asyncio.timeout(SECONDS):
        while not await rows(database, query, *values):  # noqa: ASYNC110 - a state of the database
            await asyncio.sleep(0.02)


async def settled_nothing(stage: Stage) -> None:
    """Wait until no operation of the stage has a task any more."""
    async with asyncio.timeout(SECONDS):
        while stage.runtime._services.rings.all():  # noqa: ASYNC110 - the task gives up by itself
            await asyncio.sleep(0.01)


async def test_an_operation_whose_end_can_not_be_written_is_ended_once_that_is_possible(database: str) -> None:
    async with running_stage(database, **QUICK) as stage:
        stage.provider.add("Hi.", "Still here.")
        await break_down(database, "INSERT ON stream_events", AN_END)
        turn = asyncio.create_task(stage.play("Hello"))
        await until(database, RUNNING)
        await settled_nothing(stage)
        assert await rows(database, RUNNING)
        await mend(database, "stream_events")
        async with asyncio.timeout(SECONDS):
            chunks = await turn
        assert types(chunks)[-2:] == ["error", "final_response"]
        assert one(chunks, "error")["code"] == "TURN_INTERRUPTED"
        again = await stage.play("And now?")
        assert one(again, "final_response")["final_response_text"] == "Still here."
        assert not await rows(database, RUNNING)


async def test_an_operation_whose_task_is_gone_is_ended_and_the_conversation_goes_on(database: str) -> None:
    async with running_stage(database, **QUICK) as stage:
        hold = Hold()
        stage.provider.add(["It is ", hold], "Still here.")
        turn = asyncio.create_task(stage.play("What time is it?"))
        async with asyncio.timeout(SECONDS):
            await hold.reached.wait()
        (task,) = stage.runtime._lifecycle.tasks._running
        task.cancel()
        async with asyncio.timeout(SECONDS):
            chunks = await turn
        assert one(chunks, "error")["code"] == "TURN_INTERRUPTED"
        again = await stage.play("And now?")
        assert one(again, "final_response")["final_response_text"] == "Still here."


async def test_a_turn_that_could_not_leave_the_queue_blocks_nobody(database: str) -> None:
    async with running_stage(database, **QUICK) as stage:
        hold = Hold()
        stage.provider.add([hold, "First."], "Third.")
        first = asyncio.create_task(stage.play("One"))
        await until(database, RUNNING)
        second = asyncio.create_task(stage.play("Two", on_busy="wait"))
        await until(database, WAITING)
        await break_down(database, "DELETE ON inbound_messages")
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        async with asyncio.timeout(SECONDS):
            while len(stage.runtime._lifecycle.tasks) > 1:  # noqa: ASYNC110 - the waiter's task gives up
                await asyncio.sleep(0.01)
        assert await rows(database, WAITING)
        await mend(database, "inbound_messages")
        third = asyncio.create_task(stage.play("Three", on_busy="wait"))
        hold.release()
        async with asyncio.timeout(SECONDS):
            assert one(await first, "final_response")["final_response_text"] == "First."
            assert one(await third, "final_response")["final_response_text"] == "Third."
        assert not await rows(database, WAITING)
        assert [text for role, text in await stage.said() if role == "user"] == ["One", "Three"]


async def test_a_sweep_leaves_alone_what_this_process_works_on(database: str) -> None:
    async with running_stage(database, **QUICK) as stage:
        hold = Hold()
        stage.provider.add([hold, "First."], "Second.")
        first = asyncio.create_task(stage.play("One"))
        await until(database, RUNNING)
        second = asyncio.create_task(stage.play("Two", on_busy="wait"))
        await until(database, WAITING)
        takeover = stage.runtime._lifecycle._takeover
        assert await takeover.sweep(lambda _: (_ for _ in ()).throw(AssertionError)) == 0
        hold.release()
        assert one(await first, "final_response")["final_response_text"] == "First."
        assert one(await second, "final_response")["final_response_text"] == "Second."
