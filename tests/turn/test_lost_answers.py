"""The database's answer to a T1 or a T2 gets lost, or the transaction does: a retry first reads whether it has landed.

A proxy keeps the answer (or the commit) back and cuts the connection, so the process can't know which of the two it is.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from app.domain.ids import fresh_uuid, row_key
from app.providers.scripted import Hold, call
from app.store import claims, inbound, replicas, streams
from app.store.database import Connection, Database
from app.turn.facade.host import Chunk
from app.turn.orchestrator.ending import end_seized
from app.turn.orchestrator.queue import GAVE_WAY
from tests.databases import rows
from tests.kill_points import COMMIT, DONE, KillPoints, kill_points
from tests.stage import ADA, CHAT, WEATHER, Stage, result, turn_input
from tests.turn.pausing import by_results, codes, held, paused, scripted, tables, until, weather

KEY = row_key("", CHAT)
LOCKED = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
ONCE = """
SELECT (SELECT count(*) FROM inbound_messages) AS operations, (SELECT count(*) FROM streams) AS streams,
    (SELECT count(*) FROM conversations WHERE running_operation IS NOT NULL) AS running
"""


@asynccontextmanager
async def behind(database: str) -> AsyncIterator[tuple[Stage, KillPoints]]:
    async with kill_points(database) as points, scripted(points.url) as stage:
        yield stage, points


async def cut(playing: Awaitable[list[Chunk]], points: KillPoints, name: str, at: str) -> list[Chunk]:
    """Play something whose connection is cut at a point."""
    hold = points.hold(name, at, KEY)
    task = asyncio.ensure_future(playing)  # noqa: TID251 - it is awaited in here
    await hold.reached()
    hold.drop()
    return await asyncio.wait_for(task, 30)


async def reply(stage: Stage) -> list[Chunk]:
    stage.provider.add("Hello, Ada.")
    return await stage.play("Hi.")


async def pause(stage: Stage) -> list[Chunk]:
    stage.provider.add([weather("c1")])
    return await stage.play("Hi.", tools=[WEATHER])


async def tool(stage: Stage) -> list[Chunk]:
    stage.provider.add([call("current_time", id="own-1")])
    return await reply(stage)


async def new_turn(stage: Stage) -> list[Chunk]:
    await paused(stage, "c0", text="Before.")
    return await reply(stage)


async def results(stage: Stage) -> list[Chunk]:
    pending = await paused(stage, "c0", text="Before.")
    stage.provider.add("Warm.")
    return await by_results(stage, pending, result("c0"))


WAYS: list[tuple[Callable[[Stage], Awaitable[list[Chunk]]], str]] = [
    (reply, "accept"), (reply, "touch"), (tool, "journal"), (reply, "settle"), (pause, "settle"), (new_turn, "take"),
    (results, "continue"),
]  # fmt: skip


@pytest.mark.parametrize("at", [COMMIT, DONE])
@pytest.mark.parametrize(("play", "name"), WAYS)
async def test_what_is_stored_and_told_is_the_same_as_if_no_answer_had_been_lost(
    database: str, play: Callable[[Stage], Awaitable[list[Chunk]]], name: str, at: str
) -> None:
    async with behind(database) as (stage, points):
        with capture_logs() as logs:
            chunks = await cut(play(stage), points, name, at)
        assert "lost" not in [log["status"] for log in logs if log["event"] == "operation"]
        asked = await stage.runtime.open_events(ADA, chunks[-1]["stream_id"], None, follow=False)
        assert asked is not None
        ids = [line async for piece in asked for line in piece.splitlines() if line.startswith(b"id: ")]
        said = await stage.said()
        if play is pause:
            assert chunks[-1]["pause_id"] == (await held(stage)).pause_id
            assert len(await rows(database, "SELECT 1 FROM pending_external_tool_requests")) == 1
        else:
            assert chunks[-1]["type"] == "final_response"
            assert said[-1] == ("assistant", chunks[-1]["final_response_text"])
    assert len(ids) == len(set(ids))
    assert [content for role, content in said if role == "user"].count("Hi.") == (play is not results)
    assert [role for role, _ in said].count("tool") == (play in {new_turn, results})
    count = 1 if play in {reply, tool, pause} else 2
    told = dict((await rows(database, ONCE))[0])
    assert told == {"operations": count, "streams": 1 if play is results else count, "running": 0}


async def before(stage: Stage, name: str) -> None:
    """Have a conversation that a turn takes by that transaction."""
    if name == "take":
        await paused(stage, "c0", text="Before.")
    else:
        await reply(stage)


@pytest.mark.parametrize("name", ["accept", "take"])
async def test_a_turn_that_has_not_landed_finds_who_has_the_conversation_now(database: str, name: str) -> None:
    async with behind(database) as (stage, points):
        await before(stage, name)
        hold, writing = points.hold(name, COMMIT, KEY), Hold()
        late = asyncio.create_task(stage.play("Late."))
        await hold.reached()
        stage.provider.add(["So far", writing])
        other = asyncio.create_task(stage.runtime.start_turn(turn_input("First.")))

        async def has_come() -> bool:
            return other.done() if name == "accept" else bool(await rows(database, LOCKED))

        await until(has_come)
        hold.drop()
        assert codes(await asyncio.wait_for(late, 30)) == ["CONVERSATION_BUSY"]
        assert (await stage.runtime.get_conversation(ADA, CHAT)).active_stream_id == (await other).stream_id
        writing.release()


async def run_again_elsewhere(_: Stage, connection: Connection) -> None:
    """Do what another process does that takes the running operation over, and lives."""
    other = fresh_uuid()
    await replicas.register(connection, other, timedelta(hours=1))
    query = "SELECT running_operation, running_replica FROM conversations WHERE running_operation IS NOT NULL"
    operation, own = (await connection.execute(text(query))).one()
    await replicas.leave(connection, own)
    entry = await inbound.find(connection, KEY, operation)
    held = await claims.reclaim(connection, KEY, operation, other)
    assert entry is not None
    assert held is not None
    await inbound.run_again(connection, entry, held.fence)
    await streams.run_again(connection, KEY, entry.stream_id, held.fence)


async def made_to_make_way(stage: Stage, connection: Connection) -> None:
    """Do what a turn does that interrupts the running operation and has waited for it in vain."""
    running = await claims.ask_to_cancel(connection, KEY)
    assert running is not None
    entry = await inbound.find(connection, KEY, running.operation)
    seized = await claims.seize(connection, KEY, running.operation, only_dead=False)
    assert entry is not None
    assert seized is not None
    await end_seized(connection, stage.runtime._services, seized, entry, GAVE_WAY)


@pytest.mark.parametrize("since", [run_again_elsewhere, made_to_make_way])
@pytest.mark.parametrize("name", ["accept", "take"])
async def test_a_turn_that_has_landed_and_is_anothers_or_over_since_is_neither_run_nor_accepted_here(
    database: str, name: str, since: Callable[[Stage, Connection], Awaitable[None]]
) -> None:
    async with behind(database) as (stage, points):
        await before(stage, name)
        hold, other = points.hold(name, DONE, KEY), Database(database, pool_size=1)
        late = asyncio.create_task(stage.play("Late."))
        await hold.reached()
        async with other.transaction() as connection:
            await since(stage, connection)
        stored = await tables(database)
        hold.drop()
        assert codes(await asyncio.wait_for(late, 30)) == ["SYS_SERVICE_UNAVAILABLE"]
        assert await tables(database) == stored
        await other.close()
