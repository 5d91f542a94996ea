"""How long a paused stream stays open, and who of several may continue its pause."""

import asyncio

import pytest

from app.domain.turn import Pause
from app.providers.scripted import Hold
from tests.guardrails.leaks import replay
from tests.requirements import requirement
from tests.stage import ADA, WEATHER, Stage, result
from tests.turn.pausing import (
    Answer,
    asks_for,
    by_results,
    by_resume,
    codes,
    held,
    paused,
    scripted,
    status,
    tables,
    told,
)


@requirement("R74", "R82", "R91", "R92")
async def test_a_continuation_that_stops_again_is_continued_on_the_same_stream(shared_database: str) -> None:
    async with scripted(shared_database) as stage:
        first = await paused(stage, "c1")
        stage.provider.add(asks_for("c2"), "Done.")
        again = await by_results(stage, first, result("c1"))
        second = await held(stage)

        assert again[-1]["type"] == "tool_call_request"
        assert (second.stream_id, second.turn_id) == (first.stream_id, first.turn_id)
        ends = [line for line in (await replay(stage, first.stream_id)).splitlines() if '"status":"paused"' in line]
        assert [pause.pause_id in end for pause, end in zip((first, second), ends, strict=True)] == [True, True]
        assert second.pause_id != first.pause_id
        assert await status(stage, first.stream_id) == "paused"
        late = await stage.pass_results(first.stream_id, result("c1"), pause_id=first.pause_id)
        assert codes(late) == codes(await by_results(stage, second, result("c1"))) == ["SYS_INVALID_STATE"]

        done = await by_results(stage, second, result("c2", "windy"))
        assert done[-1]["final_response_text"] == "Done."
        assert await status(stage, first.stream_id) == "completed"
        assert [message["role"] for message in told(stage.provider.requests[-1])] == [
            *("user", "assistant", "tool", "assistant", "tool")
        ]


@requirement("R75", "R80")
async def test_results_for_a_pause_that_was_let_go_reach_neither_model_nor_conversation(stage: Stage) -> None:
    pause = await paused(stage, "c1")
    assert await stage.runtime.cancel(ADA, pause.stream_id) == "cancelled"
    before = await tables(stage.database)

    assert codes(await by_results(stage, pause, result("c1"))) == ["TOOL_ERROR"]
    assert await tables(stage.database) == before
    assert len(stage.provider.requests) == 1


@requirement("R89")
@pytest.mark.parametrize("ways", [(by_results, by_results), (by_results, by_resume), (by_resume, by_resume)])
async def test_of_two_answers_at_once_one_continues_and_the_other_is_refused(
    stage: Stage, ways: tuple[Answer, Answer]
) -> None:
    pause = await paused(stage, "c1")
    hold = Hold()
    stage.provider.add([hold, "Mild."])

    both = [asyncio.create_task(way(stage, pause, result("c1"))) for way in ways]
    async with asyncio.timeout(30):
        await hold.reached.wait()
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        hold.release()
        ended = await asyncio.gather(*both)
    assert sorted(len(chunks) > 1 for chunks in ended) == [False, True]
    refused, taken = sorted(ended, key=len)
    assert codes(refused) in (["SYS_INVALID_STATE"], ["TOOL_ERROR"])
    assert ways != (by_results, by_results) or codes(refused) == ["SYS_INVALID_STATE"]
    assert taken[-1]["final_response_text"] == "Mild."
    assert len(stage.provider.requests) == 2


@requirement("R92")
@pytest.mark.parametrize("how", ["results", "resume", "new_turn", "cancelled"])
async def test_a_paused_stream_stays_open_until_something_takes_or_ends_its_pause(stage: Stage, how: str) -> None:
    pause: Pause = await paused(stage, "c1")
    assert await status(stage, pause.stream_id) == "paused"
    stage.provider.add("Fine.")
    match how:
        case "results":
            await by_results(stage, pause, result("c1"))
        case "resume":
            await by_resume(stage, pause, result("c1"))
        case "new_turn":
            await stage.play("Something else.", tools=[WEATHER])
        case _:
            await stage.runtime.cancel(ADA, pause.stream_id)
    assert await status(stage, pause.stream_id) in {"completed", "cancelled"}
    late = await by_results(stage, pause, result("c1"))
    assert codes(late) == ["TOOL_ERROR"]
    reason = {"results": "ended", "resume": "resumed"}.get(how, how)
    assert late[0]["details"]["reason"] == reason
