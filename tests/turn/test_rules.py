"""Rules of one operation at a time that no other folder breaks on purpose: fences, intents, re-runs, what is erased."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from app.domain.ids import fresh_uuid, row_key
from app.domain.pause import PauseEvent
from app.domain.turn import Pause, TurnOptions
from app.providers.scripted import Hold
from app.store import claims, retention
from app.store.database import OutcomeUnknownError
from app.turn.orchestrator.rerun import Rerun
from tests.databases import execute, rows
from tests.stage import ADA, CHAT, WEATHER, Stage, one, result, running_stage, turn_input
from tests.turn.pausing import by_results, codes, forsake, held, paused, scripted, status, until, weather


def put(table: str, column: str, path: str) -> str:
    """Put 99 at a place in a JSON column: it is no version that is known, and it is true."""
    return f"UPDATE {table} SET {column} = jsonb_set({column}::jsonb, '{{{path}}}', '99')::json"  # noqa: S608 - names of this module


LOCKED = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
SECONDS = 599.0
FENCE = "SELECT fence FROM conversations WHERE conversation_id = $1"


async def fence(stage: Stage, chat: str = CHAT) -> int:
    return int((await rows(stage.database, FENCE, chat))[0][0])


async def begun(stage: Stage, *before: str, chat: str = CHAT) -> tuple[str, Hold]:
    """Start a turn that waits in the middle of its answer."""
    hold = Hold()
    stage.provider.add([*before, hold, "Done."])
    started = await stage.runtime.start_turn(turn_input("Hello.", conversation=chat))
    await asyncio.wait_for(hold.reached.wait(), 20)
    return started.stream_id, hold


async def is_closed(stage: Stage, stream_id: str) -> bool:
    return await status(stage, stream_id) not in {"running", "paused"}


# Fences ---------------------------------------------------------------------------------------------------------


async def by_cancel(stage: Stage, pause: Pause) -> None:
    assert await stage.runtime.cancel(ADA, pause.stream_id) == "cancelled"


async def by_expiry(stage: Stage, pause: Pause) -> None:
    assert await stage.runtime._pausing.end(row_key("", CHAT), pause.pause_id, PauseEvent.EXPIRED)


async def by_new_turn(stage: Stage, pause: Pause) -> None:
    stage.provider.add("Bye.")
    await stage.play(f"Something else than {pause.pause_id}.")


async def by_takeover(stage: Stage, pause: Pause) -> None:
    hold = Hold()
    stage.provider.add(["So far", hold])
    passing = asyncio.create_task(by_results(stage, pause, result("c1")))
    await asyncio.wait_for(hold.reached.wait(), 20)
    forsake(stage)
    assert (await asyncio.wait_for(passing, 40))[-1]["type"] == "final_response"


ENDS: list[Callable[[Stage, Pause], Coroutine[Any, Any, None]]] = [by_cancel, by_expiry, by_new_turn, by_takeover]


@pytest.mark.parametrize("end", ENDS)
async def test_whoever_ends_a_pause_or_an_operation_has_a_fence_of_its_own_that_is_higher(
    stage: Stage, end: Callable[[Stage, Pause], Coroutine[Any, Any, None]]
) -> None:
    pause = await paused(stage, "c1")
    before = await fence(stage)
    await end(stage, pause)
    query = "SELECT fence FROM stream_events WHERE stream_id = $1 ORDER BY fence, first_n"
    written = [row["fence"] for row in await rows(stage.database, query, pause.stream_id)]
    assert written[-1] > before
    assert written[-1] <= await fence(stage)
    assert written == sorted(written)


async def test_a_fence_names_one_operation_of_all_conversations(stage: Stage) -> None:
    for number in range(4):
        stage.provider.add("Hello.")
        await stage.play("Hi.", conversation=f"chat-{number % 2}")
    found = [
        row["fence"] for row in await rows(stage.database, "SELECT fence FROM inbound_messages ORDER BY created_at")
    ]
    assert found == sorted(set(found))


async def test_an_intent_to_cancel_hits_the_operation_that_it_names_and_no_other(stage: Stage) -> None:
    stream, hold = await begun(stage)
    cancels = stage.runtime._services.cancels
    await rows(stage.database, "UPDATE conversations SET cancel_fence = fence - 1")
    await cancels.look()
    await rows(stage.database, "UPDATE conversations SET cancel_fence = fence + 1")
    await cancels.look()
    hold.release()
    await until(partial(is_closed, stage, stream))
    assert await status(stage, stream) == "completed"

    # An intent that came too late stays behind; the next operation is not the one that it was for.
    await rows(stage.database, "UPDATE conversations SET cancel_fence = fence")
    stream, hold = await begun(stage)
    await cancels.look()
    hold.release()
    await until(partial(is_closed, stage, stream))
    assert await status(stage, stream) == "completed"

    stream, hold = await begun(stage)
    await rows(stage.database, "UPDATE conversations SET cancel_fence = fence")
    await cancels.look()
    await until(partial(is_closed, stage, stream))
    assert await status(stage, stream) == "cancelled"
    assert hold.closed


# Outcomes and takeovers -----------------------------------------------------------------------------------------


async def test_an_outcome_that_can_not_be_learnt_is_not_announced(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_stage(database, lease_seconds=4.0, lease_renew_seconds=0.5) as stage:
        hold = Hold()
        stage.provider.add(["So far", hold, " and no further."])
        playing = asyncio.create_task(stage.play("Hello."))
        await asyncio.wait_for(hold.reached.wait(), 20)
        await stage.runtime._services.log.settle()

        async def nobody_knows(*_: Any, **__: Any) -> None:
            raise OutcomeUnknownError

        with monkeypatch.context() as patch:
            patch.setattr(stage.runtime._services.database, "land", nobody_knows)
            hold.release()
            await until_idle(stage)
        chunks = await asyncio.wait_for(playing, 40)

        assert one(chunks, "error")["code"] == "TURN_INTERRUPTED"
        final = one(chunks, "final_response")
        kept = [content for role, content in await stage.said() if role == "assistant"]
        assert kept == [final["final_response_text"]]
        assert "So far" in kept[0]


async def until_idle(stage: Stage) -> None:
    """Wait until no operation of the stage has a task any more."""

    async def idle() -> bool:
        return not stage.runtime._lifecycle.tasks._running

    await until(idle)


@dataclass
class Again:
    """An operation that was started again, as a takeover knows it."""

    done: bool = False


async def test_a_process_runs_no_more_operations_again_at_a_time_than_it_may(shared_database: str) -> None:
    async with running_stage(shared_database, max_reruns=2) as stage:
        stage.runtime._lifecycle._sweeping.cancel()
        takeover = stage.runtime._lifecycle._takeover
        for number in range(5):
            await begun(stage, chat=f"chat-{number}")
        forsake(stage)
        await until_idle(stage)
        await rows(shared_database, "UPDATE conversations SET running_replica = $1", fresh_uuid())
        started: list[Again] = []

        def start(_: Rerun) -> Again:
            started.append(Again())
            # What is started again is worked on here, so it is no stray.
            stage.runtime._services.cancels.enter(object(), _.entry.operation)
            return started[-1]

        for expected in (2, 2):
            await takeover.sweep(start)
            assert len(started) == expected
        started[0].done = True
        for expected in (3, 3):
            await takeover.sweep(start)
            assert len(started) == expected
        attempts = await rows(shared_database, "SELECT attempt FROM inbound_messages ORDER BY attempt")
        assert [row["attempt"] for row in attempts] == [1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("unless", "again"),
    [
        ("SELECT 1", True),
        ("UPDATE inbound_messages SET touched = true", False),
        ("UPDATE inbound_messages SET attempt = 2", False),
        (put("inbound_messages", "payload", "had_provider_keys"), False),
        (put("pending_external_tool_requests", "snapshot", "terms,had_keys"), False),
        (put("pending_external_tool_requests", "snapshot", "version"), False),
    ],
    ids=["untouched", "touched", "run twice", "keys of its own", "keys of its turn", "a newer snapshot"],
)
async def test_a_continuation_is_run_again_only_if_nothing_was_seen_of_it_and_all_it_needs_is_stored(
    shared_database: str,
    unless: str,
    again: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    async with running_stage(shared_database) as stage:
        stage.runtime._lifecycle._sweeping.cancel()
        pause = await paused(stage, "c1")
        hold = Hold()
        stage.provider.add([hold])
        passing = asyncio.create_task(by_results(stage, pause, result("c1")))
        await asyncio.wait_for(hold.reached.wait(), 20)
        forsake(stage)
        await until_idle(stage)
        await rows(shared_database, "UPDATE conversations SET running_replica = $1", fresh_uuid())
        await execute(shared_database, unless)
        started: list[Rerun] = []

        def start(rerun: Rerun) -> Again:
            started.append(rerun)
            stage.runtime._services.cancels.enter(object(), rerun.entry.operation)
            return Again()

        assert await stage.runtime._lifecycle._takeover.sweep(start) == 1
        assert len(started) == again
        if again:
            passing.cancel()
        else:
            assert "TURN_INTERRUPTED" in codes(await asyncio.wait_for(passing, 20))
            states = await rows(shared_database, "SELECT state FROM pending_external_tool_requests")
            assert [row["state"] for row in states] == ["ended"]


@pytest.mark.parametrize("pauses", [False, True])
async def test_neither_a_cancel_nor_the_end_of_its_time_breaks_into_an_outcome_that_is_written(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    pauses: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    hold, services, timeout = Hold(), stage.runtime._services, asyncio.timeout
    deadlines: list[asyncio.Timeout] = []

    def noted(seconds: float | None) -> asyncio.Timeout:
        made = timeout(seconds)
        if seconds == SECONDS:
            deadlines.append(made)
        return made

    monkeypatch.setattr(asyncio, "timeout", noted)
    stage.provider.add([hold, weather("c1")] if pauses else [hold, "Done."])
    options = TurnOptions(turn_timeout_seconds=SECONDS)
    started = await stage.runtime.start_turn(turn_input("Hello.", tools=[WEATHER], options=options))
    await asyncio.wait_for(hold.reached.wait(), 20)
    assert [deadline.when() is None for deadline in deadlines] == [False]

    async def is_written() -> bool:
        return bool(await rows(stage.database, LOCKED))

    with capture_logs() as logs:
        async with services.database.transaction() as connection:
            await connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            await claims.lock(connection, row_key("", CHAT))
            hold.release()
            await until(is_written)
            assert [deadline.when() for deadline in deadlines] == [None]
            stage.runtime.cancel_operation(started)
        await until_idle(stage)
    expected = "paused" if pauses else "completed"
    assert [log["status"] for log in logs if log["event"] == "operation"] == [expected]
    assert await status(stage, started.stream_id) == expected


# What is erased -------------------------------------------------------------------------------------------------


async def test_with_persistence_off_nothing_is_left_of_a_turn_but_how_it_ended(
    shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SETTLING", timedelta(0))
    async with scripted(shared_database, enable_conversational_persistence=False) as stage:
        pause = await paused(stage, "c1", text="My secret is xylograph.")
        kept = await everything(shared_database)
        assert "xylograph" in kept, "the pause has to hold"
        assert await held(stage) == pause
        stage.provider.add("It is about a xylograph.")
        await by_results(stage, pause, result("c1", "xylograph"))
        async with stage.runtime._services.database.transaction() as connection:
            due = await retention.due(connection, keep=timedelta(hours=24), limit=10)
            assert [stream for _, stream in due] == [pause.stream_id]
            assert await retention.expire(connection, *due[0])

        assert "xylograph" not in await everything(shared_database)
        assert await status(stage, pause.stream_id) == "completed"
        assert codes(await by_results(stage, pause, result("c1"))) == ["TOOL_ERROR"]


async def test_a_pause_outlasts_the_stream_that_it_was_held_on_until_its_resume_has_ended(
    shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A takeover of the resume needs it."""
    monkeypatch.setattr(retention, "SETTLING", timedelta(0))
    async with scripted(shared_database, enable_conversational_persistence=False) as stage:
        pause, hold = await paused(stage, "c1"), Hold()
        stage.provider.add([hold, "Warm."])
        resuming = asyncio.create_task(stage.resume(pause, result("c1")))
        await asyncio.wait_for(hold.reached.wait(), 20)
        assert await status(stage, pause.stream_id) == "cancelled"
        assert await due_streams(stage) == []
        hold.release()
        resumed = (await resuming)[-1]["stream_id"]
        assert sorted(await due_streams(stage)) == sorted([pause.stream_id, resumed])


async def due_streams(stage: Stage) -> list[str]:
    async with stage.runtime._services.database.transaction() as connection:
        return [stream for _, stream in await retention.due(connection, keep=timedelta(hours=24), limit=10)]


async def everything(database: str) -> str:
    """Give every row of every table as text; frames are bytes."""
    found = []
    for table in await rows(database, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
        for row in await rows(database, f'SELECT * FROM "{table[0]}"'):  # noqa: S608 - a name of the database's own
            found += [value.decode() if isinstance(value, bytes) else str(value) for value in row]
    return "\n".join(found)


async def test_with_persistence_off_a_pause_that_is_ended_leaves_no_message(shared_database: str) -> None:
    async with scripted(shared_database, enable_conversational_persistence=False) as stage:
        pause = await paused(stage, "c1")
        await by_cancel(stage, pause)
        assert await rows(shared_database, "SELECT 1 FROM messages") == []
