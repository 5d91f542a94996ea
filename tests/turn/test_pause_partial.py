"""Results that come one after another: stored with the pause until each call has one, and then the turn goes on."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from app.domain.errors import InvalidStateError
from app.domain.ids import row_key
from app.domain.tools import ToolResult
from app.domain.turn import Pause, ResultsInput
from app.domain.views import PartialResults, Started
from app.turn.facade.host import Chunk
from tests.databases import rows
from tests.kill_points import kill_points
from tests.requirements import requirement
from tests.stage import ADA, CHAT, Stage, one, result
from tests.turn.pausing import by_results, by_resume, codes, held, paused, scripted, tables, told, until
from tests.turn.refusing import refusing

LOCKED = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
WAYS = pytest.mark.parametrize("way", ["results", "resume"])


async def partly(stage: Stage, way: str, pause: Pause, *results: ToolResult, partial: bool = True) -> Any:
    """Pass results of which more will come; gives what the runtime answers."""
    given = ResultsInput(ADA, results, pause_id=pause.pause_id, partial=partial)
    if way == "results":
        return await stage.runtime.pass_results(replace(given, stream_id=pause.stream_id))
    return await stage.runtime.resume(replace(given, conversation_id=CHAT))


async def chunks_of(stage: Stage, started: Started) -> list[Chunk]:
    """Read what an accepted operation says."""

    async def accepted() -> Started:
        return started

    return [chunk async for chunk in stage.host._chunks(accepted(), started.stream_id)]


@requirement("R74", "R93", "R96")
@WAYS
async def test_the_turn_goes_on_with_the_result_that_completes_the_set(stage: Stage, way: str) -> None:
    pause = await paused(stage, "c1", "c2", "c3")

    first = await partly(stage, way, pause, result("c3", "three"))
    assert first == PartialResults(pause.pause_id, received=("c3",), missing=("c1", "c2"))
    waiting = await held(stage)
    assert (waiting.received, waiting.missing) == (("c3",), ("c1", "c2"))
    second = await partly(stage, way, pause, result("c1", "one"))
    assert second == PartialResults(pause.pause_id, received=("c1", "c3"), missing=("c2",))
    assert len(stage.provider.requests) == 1

    stage.provider.add("Done.")
    chunks = await chunks_of(stage, await partly(stage, way, pause, result("c2", "two")))
    assert chunks[-1]["final_response_text"] == "Done."
    assert [message["content"] for message in told(stage.provider.requests[-1])[-3:]] == ["one", "two", "three"]
    emitted = [chunk["tool_call_id"] for chunk in chunks if chunk["type"] == "tool_result_emission"]
    assert sorted(emitted) == ["c1", "c2", "c3"]
    # Stored: what had come before in call order, then the last ones as given.
    assert [said for said in await stage.said() if said[0] == "tool"] == [
        ("tool", "one"),
        ("tool", "three"),
        ("tool", "two"),
    ]


@WAYS
async def test_the_same_partial_result_again_changes_nothing_and_another_one_is_refused(stage: Stage, way: str) -> None:
    pause = await paused(stage, "c1", "c2")
    answer = await partly(stage, way, pause, result("c1", {"b": 1, "a": [2]}))
    before = await tables(stage.database)

    assert await partly(stage, way, pause, result("c1", {"b": 1, "a": [2]})) == answer
    for other in (result("c1", {"b": 1, "a": [3]}), result("c1", {"b": 1, "a": [2]}, is_error=True)):
        with pytest.raises(InvalidStateError, match="otherwise"):
            await partly(stage, way, pause, other)
        with pytest.raises(InvalidStateError, match="otherwise"):
            await partly(stage, way, pause, other, partial=False)
    for wrong in ([result("c9")], [result("c2"), result("c2")], [result("c2"), result("c9")]):
        with pytest.raises(InvalidStateError):
            await partly(stage, way, pause, *wrong)
    assert await tables(stage.database) == before


@WAYS
async def test_a_partial_result_survives_a_restart_and_counts_on_every_process(shared_database: str, way: str) -> None:
    async with scripted(shared_database) as stage, scripted(shared_database) as other:
        pause = await paused(stage, "c1", "c2", "c3")
        await partly(stage, way, pause, result("c2", "two"))
        await partly(other, way, pause, result("c1", "one"))
    async with scripted(shared_database, "Done.") as stage:
        assert (await held(stage)).missing == ("c3",)
        chunks = await chunks_of(stage, await partly(stage, way, pause, result("c3", "three")))

        assert chunks[-1]["final_response_text"] == "Done."
        assert [message["content"] for message in told(stage.provider.requests[-1])[-3:]] == ["one", "two", "three"]


async def test_what_has_come_since_a_request_looked_counts_for_its_partial_results(stage: Stage) -> None:
    pause = await paused(stage, "c1", "c2")
    looked = await stage.runtime._queries.pause(row_key("", CHAT), pause.pause_id)
    assert looked is not None
    await partly(stage, "results", pause, result("c1", "one"))
    before = await tables(stage.database)
    with pytest.raises(InvalidStateError, match="answered otherwise"):
        await stage.runtime._pausing.keep_partial(looked, (result("c1", "another"),))
    assert await stage.runtime._pausing.keep_partial(looked, (result("c2", "two"),)) is None
    assert await tables(stage.database) == before


@requirement("R95", "R98", "R109", "R104")
@pytest.mark.parametrize("how", ["results", "resume", "new_turn", "cancelled"])
async def test_a_stored_partial_result_is_its_calls_answer_however_the_pause_ends(stage: Stage, how: str) -> None:
    pause = await paused(stage, "c1", "c2", "c3")
    await partly(stage, "results", pause, result("c2", "two"))
    stage.provider.add("Done.", "Bye.")
    match how:
        case "results":
            await by_results(stage, pause, result("c3", "three"))
        case "resume":
            await by_resume(stage, pause, result("c3", "three"))
        case "new_turn":
            await stage.play("Something else.")
        case _:
            await stage.runtime.cancel(ADA, pause.stream_id)
    await stage.play("Thanks.")

    stored = {message.tool_call_id: message for message in await stage.messages() if message.role == "tool"}
    assert sorted(map(str, stored)) == ["c1", "c2", "c3"]
    assert (stored["c2"].content, stored["c2"].is_error) == ("two", False)
    assert "EXTERNAL_TOOL_NOT_RUN" in stored["c1"].content
    assert stored["c1"].is_error
    answered = [message for message in told(stage.provider.requests[-1]) if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in answered] == ["c1", "c2", "c3"]


async def test_a_set_that_is_complete_before_the_turn_is_taken_is_stored_with_the_taking_alone(database: str) -> None:
    async with scripted(database) as stage:
        pause = await paused(stage, "c1", "c2")
        await partly(stage, "results", pause, result("c1", "one"))
        before = await tables(database)
        async with refusing(database, "messages", "INSERT"):
            assert codes(await by_results(stage, pause, result("c2", "two"))) == ["SYS_INTERNAL_SERVER_ERROR"]
            with pytest.raises(Exception, match="wrong"):
                await partly(stage, "results", pause, result("c2", "two"))

        assert await tables(database) == before
        stage.provider.add("Done.")
        chunks = await chunks_of(stage, await partly(stage, "resume", pause, result("c2", "two")))
        assert one(chunks, "final_response")["final_response_text"] == "Done."


@pytest.mark.parametrize("given", [("c1",), ("c1", "c2")], ids=["beside it", "against it"])
async def test_a_partial_result_that_lands_just_before_the_turn_is_taken_counts_for_the_taking(
    database: str, given: tuple[str, ...]
) -> None:
    async with kill_points(database) as points, scripted(points.url) as stage, scripted(database) as other:
        pause = await paused(stage, "c1", "c2")
        stage.provider.add("Done.")
        hold = points.hold("continue", 0, row_key("", CHAT))
        taking = asyncio.create_task(by_results(stage, pause, *(result(call_id, "mine") for call_id in given)))
        await hold.reached()
        await partly(other, "results", pause, result("c2", "other"))
        hold.go()
        told_now = codes(await asyncio.wait_for(taking, 30))
        if "c2" in given:
            assert told_now == ["SYS_INVALID_STATE"]
            assert (await held(other)).received == ("c2",)
            await by_results(stage, pause, result("c1", "mine"))
        assert [message["content"] for message in told(stage.provider.requests[-1])[-2:]] == ["mine", "other"]


async def test_a_partial_result_that_comes_while_the_turn_is_taken_is_refused_and_not_lost(database: str) -> None:
    async with kill_points(database) as points, scripted(points.url) as stage, scripted(database) as other:
        pause = await paused(stage, "c1", "c2", "c3")
        stage.provider.add("Done.")
        locked = points.hold("continue", 2, row_key("", CHAT))
        taking = asyncio.create_task(by_results(stage, pause, result("c1", "one")))
        await locked.reached()
        late = asyncio.create_task(partly(other, "results", pause, result("c2", "late")))

        async def waits_or_is_answered() -> bool:
            return late.done() or bool(await rows(database, LOCKED))

        await until(waits_or_is_answered)
        locked.go()
        assert one(await asyncio.wait_for(taking, 30), "final_response")["final_response_text"] == "Done."
        with pytest.raises(InvalidStateError):
            await asyncio.wait_for(late, 30)
        (stored,) = await rows(database, "SELECT results::text AS results FROM pending_external_tool_requests")
        assert "late" not in stored["results"]
