"""Faults that do not go away: an ending that always fails, a note that the database refuses, a fence that is gone."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from app.domain.ids import fresh_uuid, row_key
from app.domain.turn import ResultsInput
from app.domain.usage import Usage
from app.guardrails.registry import Guards
from app.providers.scripted import Hold, call
from app.store import claims, inbound
from app.turn.orchestrator import takeover as takeover_stage
from app.turn.orchestrator.ending import end_seized
from app.turn.orchestrator.queue import GAVE_WAY
from app.turn.orchestrator.setbacks import FORGOTTEN_SECONDS, LONGEST_WAIT_SECONDS, Setbacks
from app.turn.orchestrator.takeover import Takeover
from tests.databases import execute, rows
from tests.guardrails.acting import ALLOW, OutputOnly, says
from tests.stage import ADA, CHAT, WEATHER, Stage, result, running_stage, turn_input
from tests.turn.pausing import let_die, speaking, status, tables, until, weather

BROKEN = """
CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'broken on purpose' USING ERRCODE = '{code}'; END $$;
CREATE TRIGGER broken BEFORE {what} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION broken()
"""
AN_INTERRUPTED_REPLY = "NEW.metadata::text LIKE '%interrupted%'"
RUNNING = "SELECT conversation_id FROM conversations WHERE running_operation IS NOT NULL ORDER BY 1"


class Watch:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds


def test_each_failure_is_followed_by_a_longer_wait_and_success_by_none() -> None:
    watch, one, other = Watch(), UUID(int=1), UUID(int=2)
    setbacks = Setbacks[UUID](watch.now)
    waits = []
    for _ in range(14):
        waits.append(setbacks.failed(one).wait_seconds)
        assert setbacks.waiting() == {one}
        watch.seconds += waits[-1]
        assert setbacks.waiting() == set()
    assert waits[:5] == [1, 2, 4, 8, 16]
    assert waits[-2:] == [LONGEST_WAIT_SECONDS] * 2
    assert (setbacks.are_many(one), setbacks.are_many(other)) == (True, False)
    setbacks.ended(one)
    assert not setbacks.are_many(one)


def test_what_nobody_tried_for_long_is_forgotten() -> None:
    watch, one = Watch(), UUID(int=1)
    setbacks = Setbacks[UUID](watch.now)
    for _ in range(5):
        setbacks.failed(one)
    watch.seconds += 2 * FORGOTTEN_SECONDS
    setbacks.waiting()
    assert not setbacks.are_many(one)


def sweeping(stage: Stage) -> tuple[Takeover, Watch]:
    """Give the stage's takeover, which looks only when the test says so."""
    lifecycle, watch = stage.runtime._lifecycle, Watch()
    lifecycle._sweeping.cancel()
    found = lifecycle._takeover
    found._setbacks = Setbacks[UUID](watch.now)
    return found, watch


async def left_behind(stage: Stage, *chats: str) -> list[str]:
    """Start turns that say something, and let their tasks go; gives their streams."""
    streams = []
    for chat in chats:
        started, _ = await speaking(stage, conversation=chat)
        streams.append(started.stream_id)
    await let_die(stage)
    return streams


def no_rerun(_: Any) -> Any:
    raise AssertionError


async def test_an_ending_that_always_fails_is_tried_less_and_less_and_then_made_without_what_was_said(
    database: str,
) -> None:
    async with running_stage(database) as stage:
        takeover, watch = sweeping(stage)
        (stream,) = await left_behind(stage, CHAT)
        await execute(database, BROKEN.format(code="P0001", what="INSERT ON messages", when=AN_INTERRUPTED_REPLY))
        with capture_logs() as logs:
            for wait in (1, 2, 4):
                assert await takeover.sweep(no_rerun) == 0
                assert await takeover.sweep(no_rerun) == 0
                watch.seconds += wait
            assert [row["conversation_id"] for row in await rows(database, RUNNING)] == [CHAT]
            assert await takeover.sweep(no_rerun) == 1
        failures = [log for log in logs if log["event"] == "takeover.failed"]
        assert [(log["failures"], log["again_in_seconds"]) for log in failures] == [(1, 1), (2, 2), (3, 4)]
        assert [log["stream_id"] for log in logs if log["event"] == "takeover.ended_bare"] == [stream]

        view = await stage.runtime.stream_state(ADA, stream)
        assert (view.status.value, (view.error or {})["code"]) == ("failed", "TURN_INTERRUPTED")
        stage.provider.add("Still here.")
        assert (await stage.play("And now?"))[-1]["final_response_text"] == "Still here."


async def test_an_operation_of_a_dead_process_is_made_to_end_as_well_unless_it_lives_again_elsewhere(
    database: str,
) -> None:
    async with running_stage(database, guards=Guards([OutputOnly(says(ALLOW), "g")])) as stage:
        takeover, watch = sweeping(stage)
        await left_behind(stage, CHAT)
        await rows(database, "UPDATE conversations SET running_replica = $1", fresh_uuid())
        await execute(database, BROKEN.format(code="P0001", what="INSERT ON messages", when=AN_INTERRUPTED_REPLY))
        for wait in (1, 2, 4):
            assert await takeover.sweep(no_rerun) == 0
            watch.seconds += wait
        (found,) = await rows(database, "SELECT id, running_operation FROM conversations")
        other = fresh_uuid()
        await rows(database, "INSERT INTO replicas VALUES ($1, false, now(), now() + interval '1 hour')", other)
        await rows(database, "UPDATE conversations SET running_replica = $1", other)
        assert not await takeover._take(found["id"], found["running_operation"], no_rerun)
        await rows(database, "UPDATE replicas SET dead = true WHERE id = $1", other)
        assert await takeover.sweep(no_rerun) == 1
        assert await rows(database, RUNNING) == []
        # Nobody has judged what it had said.
        assert all(b"So far" not in row["frames"] for row in await rows(database, "SELECT frames FROM stream_events"))


async def test_a_continuation_that_is_made_to_end_ends_its_pause_and_keeps_what_its_turn_has_used(
    database: str,
) -> None:
    async with running_stage(database) as stage:
        takeover, watch = sweeping(stage)
        hold = Hold()
        stage.provider.add([Usage(10, 3), weather("c1")], ["So far", hold])
        stream = (await stage.play("Hello.", tools=[WEATHER]))[-1]["stream_id"]
        await stage.runtime.pass_results(ResultsInput(ADA, (result("c1"),), stream_id=stream))
        await asyncio.wait_for(hold.reached.wait(), 20)
        await let_die(stage)
        await execute(database, BROKEN.format(code="P0001", what="INSERT ON messages", when=AN_INTERRUPTED_REPLY))
        for wait in (1, 2, 4):
            assert await takeover.sweep(no_rerun) == 0
            watch.seconds += wait
        assert await takeover.sweep(no_rerun) == 1
        view = await stage.runtime.stream_state(ADA, stream)
        assert (view.status.value, (view.usage or {})["prompt_tokens"]) == ("failed", 10)
        (pause,) = await rows(database, "SELECT state, end_reason FROM pending_external_tool_requests")
        assert tuple(pause) == ("ended", "continued")


async def test_those_whose_ending_fails_keep_nobody_else_waiting(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover_stage, "AT_ONCE", 1)
    async with running_stage(database) as stage:
        takeover, _ = sweeping(stage)
        await left_behind(stage, "bad-1", "bad-2", "good")
        await rows(database, "UPDATE conversations SET running_replica = $1", fresh_uuid())
        when = f"{AN_INTERRUPTED_REPLY} AND NEW.conversation <> '{row_key('', 'good')}'"
        await execute(database, BROKEN.format(code="P0001", what="INSERT ON messages", when=when))
        for _ in range(3):
            await takeover.sweep(no_rerun)
        assert [row["conversation_id"] for row in await rows(database, RUNNING)] == ["bad-1", "bad-2"]


async def test_an_end_that_can_not_be_written_is_given_up_when_its_process_was_declared_dead(database: str) -> None:
    async with running_stage(database) as stage:
        _, hold = await speaking(stage)
        sweeping(stage)
        full = BROKEN.format(code="53100", what="INSERT ON messages", when="NEW.role = 'assistant'")
        await execute(database, full)
        (ring,) = stage.runtime._services.rings.all()
        hold.release()

        async def is_settling() -> bool:
            return ring.sealed

        await until(is_settling)
        await execute(database, "UPDATE replicas SET dead = true")
        await stage.runtime._services.lease._renew()

        async def has_left() -> bool:
            return not stage.runtime._lifecycle.tasks._running

        await until(has_left)
        assert [row["conversation_id"] for row in await rows(database, RUNNING)] == [CHAT]


@pytest.mark.parametrize("code", ["23514", "23505"])
async def test_a_note_that_the_database_refuses_ends_the_turn_and_the_next_one_works(database: str, code: str) -> None:
    """A constraint that a touch breaks is a fault of ours: it is not tried for ever."""
    async with running_stage(database) as stage:
        await execute(database, BROKEN.format(code=code, what="UPDATE ON inbound_messages", when="NEW.touched"))
        stage.provider.add("Never heard.")
        failed = await asyncio.wait_for(stage.play("Hello."), 20)
        assert (failed[-1]["type"], failed[-1]["code"]) == ("error", "SYS_INTERNAL_SERVER_ERROR")
        assert await status(stage, failed[-1]["stream_id"]) == "failed"
        assert await stage.said() == [("user", "Hello.")]
        await execute(database, "DROP TRIGGER broken ON inbound_messages")
        stage.provider.add("Here.")
        assert (await stage.play("And now?"))[-1]["final_response_text"] == "Here."


@pytest.mark.parametrize("then", ["a step", "a round", "text", "a pause"])
async def test_a_turn_that_lost_its_fence_stops_without_a_word(shared_database: str, then: str) -> None:
    hold = Hold()
    clock = call("current_time", id="own-1")
    steps: dict[str, list[Any]] = {
        "a step": [[clock], [hold, "Unheard."]],
        "a round": [[hold, clock], "Unheard."],
        "text": [[hold, "Unheard."]],
        "a pause": [[hold, weather("c1")]],
    }
    async with running_stage(shared_database) as stage:
        stage.provider.add(*steps[then])
        await stage.runtime.start_turn(turn_input("Hello.", tools=[WEATHER]))
        await asyncio.wait_for(hold.reached.wait(), 20)
        services = stage.runtime._services
        await services.log.settle()
        (running,) = await rows(shared_database, "SELECT id, running_operation FROM conversations")
        with capture_logs() as logs:
            async with services.database.transaction() as connection:
                found = await inbound.find(connection, running["id"], running["running_operation"])
                seized = await claims.seize(connection, running["id"], running["running_operation"], only_dead=False)
                assert found is not None
                assert seized is not None
                await end_seized(connection, services, seized, found, GAVE_WAY)
            before = await tables(shared_database)
            hold.release()

            async def has_left() -> bool:
                return not stage.runtime._lifecycle.tasks._running

            await until(has_left)
        assert await tables(shared_database) == before
        assert [log["status"] for log in logs if log["event"] == "operation"] == ["lost"]
        assert [log["event"] for log in logs if log["log_level"] in {"error", "critical"}] == []
