"""Results for a pause: taken whole and once, or refused with one error that changes nothing."""

import asyncio
from uuid import UUID

import pytest

from app.domain.tools import ToolResult
from app.domain.turn import Pause
from app.providers.scripted import Hold, call
from app.store.pauses import PauseRecord
from app.turn.facade.host import Chunk
from app.turn.facade.queries import Queries
from tests.databases import rows
from tests.requirements import requirement
from tests.stage import ADA, WEATHER, Stage, one, result, types

ASKS = [call("get_weather", {"city": "Berlin"}, id="c1"), call("get_weather", {"city": "Rome"}, id="c2")]


async def paused(stage: Stage, *calls: str, text: str = "Weather?") -> Pause:
    """Run a turn that pauses for the calls (c1 and c2 when none are named) and give the pause."""
    asked = [call("get_weather", {"city": "Berlin"}, id=name) for name in calls] or ASKS
    stage.provider.add(asked)
    await stage.play(text, tools=[WEATHER])
    pending = await stage.pending()
    assert pending is not None
    return pending


def refusal(chunks: list[Chunk]) -> str:
    """Give the code of a refusal, which is one error chunk and nothing else."""
    assert types(chunks) == ["error"]
    assert chunks[0]["is_final"] is True
    assert chunks[0]["message"]
    return str(chunks[0]["code"])


async def traces(stage: Stage) -> list[object]:
    """Give everything that results could change: messages, pauses, streams, and what the model was asked."""
    stored = await rows(
        stage.database,
        "SELECT 'message', position::text, role FROM messages UNION ALL"
        " SELECT 'pause', pause_id, state FROM pending_external_tool_requests UNION ALL"
        " SELECT 'stream', stream_id, status || fence FROM streams ORDER BY 1, 2",
    )
    return [*map(tuple, stored), len(stage.provider.requests)]


@requirement("R74")
async def test_results_on_the_stream_continue_the_pause_that_it_saved(stage: Stage) -> None:
    pause = await paused(stage)
    stage.provider.add("Warm in both.")

    done = await stage.pass_results(pause.stream_id, result("c1", "21"), result("c2", "25"), pause_id=pause.pause_id)
    assert types(done) == [
        "tool_result_emission", "tool_result_emission", "text_delta", "metadata_update", "final_response",
    ]  # fmt: skip
    assert {chunk["stream_id"] for chunk in done} == {pause.stream_id}
    assert await stage.pending() is None


@requirement("R73", "R84", "R85", "R86", "R192")
@pytest.mark.parametrize("first", ["stream", "resume"])
@pytest.mark.parametrize("second", ["stream", "resume"])
async def test_a_pause_is_continued_once_whichever_ways_are_mixed(stage: Stage, first: str, second: str) -> None:
    async def by(way: str) -> list[Chunk]:
        answers = (result("c1", "21"), result("c2", "25"))
        if way == "resume":
            return await stage.resume(pause, *answers)
        return await stage.pass_results(pause.stream_id, *answers)

    pause = await paused(stage)
    stage.provider.add("Warm in both.")
    assert (await by(first))[-1]["type"] == "final_response"
    before = await traces(stage)

    # The stream is closed (TOOL_ERROR); a resume names a pause that the conversation no longer holds.
    assert refusal(await by(second)) == {"stream": "TOOL_ERROR", "resume": "SYS_INVALID_STATE"}[second]
    assert await traces(stage) == before


@requirement("R75", "R76", "R78", "R79", "R80", "R87", "R114")
async def test_results_for_a_pause_that_a_newer_turn_ended_are_refused(stage: Stage) -> None:
    old = await paused(stage, "c1")
    new = await paused(stage, "c2", text="And in Rome?")
    before = await traces(stage)

    assert refusal(await stage.pass_results(old.stream_id, result("c1"))) == "TOOL_ERROR"
    one_by_one = stage.host.handle_tool_result(ADA, old.stream_id, result("c1"))
    assert refusal([chunk async for chunk in one_by_one]) == "TOOL_ERROR"
    # The conversation's own pause does not help a stream that is not its stream.
    assert refusal(await stage.pass_results(old.stream_id, result("c2"))) == "TOOL_ERROR"
    assert await traces(stage) == before
    assert await stage.pending() == new


@requirement("R77", "R78", "R79", "R80", "R83")
@pytest.mark.parametrize(
    "answers",
    [
        [result("c9")],
        [result("c1"), result("c9")],
        [result("c1"), result("c2"), result("c9")],
        [result("c1", "21"), result("c1", "22")],
        [result("c1"), result("c2", {1, 2})],
        [result("c1"), result("c2", float("nan"))],
    ],
    ids=["unknown", "known and unknown", "one too many", "twice", "no JSON", "not a number"],
)
async def test_one_result_that_does_not_fit_sinks_the_whole_batch(stage: Stage, answers: list[ToolResult]) -> None:
    pause = await paused(stage)
    before = await traces(stage)

    assert refusal(await stage.pass_results(pause.stream_id, *answers)) == "SYS_INVALID_STATE"
    assert refusal(await stage.resume(pause, *answers)) == "SYS_INVALID_STATE"
    one_by_one = stage.host.handle_tool_result(ADA, pause.stream_id, answers[-1])
    if answers[-1].tool_call_id == "c9":
        assert refusal([chunk async for chunk in one_by_one]) == "SYS_INVALID_STATE"
    assert await traces(stage) == before

    stage.provider.add("Warm.")
    done = await stage.pass_results(pause.stream_id, result("c1"), result("c2"))
    assert done[-1]["type"] == "final_response"


@requirement("R80", "R81")
async def test_results_while_the_pause_is_being_continued_are_refused(stage: Stage) -> None:
    hold = Hold()
    pause = await paused(stage)
    stage.provider.add([hold, "Warm in both."])
    answers = (result("c1", "21"), result("c2", "25"))
    going_on = asyncio.create_task(stage.pass_results(pause.stream_id, *answers))
    await hold.reached.wait()
    before = await traces(stage)

    assert refusal(await stage.pass_results(pause.stream_id, *answers)) == "SYS_INVALID_STATE"
    assert refusal(await stage.resume(pause, *answers)) == "SYS_INVALID_STATE"
    assert await traces(stage) == before
    hold.release()
    assert (await going_on)[-1]["type"] == "final_response"


@requirement("R82", "R91", "R27")
async def test_results_for_a_pause_that_the_streams_next_pause_replaced_are_refused(stage: Stage) -> None:
    first = await paused(stage, "c1")
    stage.provider.add([call("get_weather", {"city": "Rome"}, id="c2")])
    again = await stage.pass_results(first.stream_id, result("c1"))
    second = await stage.pending()
    assert second is not None
    assert (second.stream_id, again[-1]["pause_id"]) == (first.stream_id, second.pause_id)
    before = await traces(stage)

    assert refusal(await stage.pass_results(first.stream_id, result("c1"))) == "SYS_INVALID_STATE"
    assert refusal(await stage.pass_results(first.stream_id, result("c2"), pause_id=first.pause_id)) == (
        "SYS_INVALID_STATE"
    )
    assert refusal(await stage.resume(first, result("c1"))) == "SYS_INVALID_STATE"
    assert await traces(stage) == before

    stage.provider.add("Warm in both.")
    done = await stage.pass_results(first.stream_id, result("c2"), pause_id=second.pause_id)
    assert one(done, "final_response")["final_response_text"] == "Warm in both."


@requirement("R84")
async def test_results_on_the_stream_of_a_turn_that_ended_are_refused(stage: Stage) -> None:
    stage.provider.add("Hello.")
    done = await stage.play("Hi.")
    before = await traces(stage)

    refused = await stage.pass_results(done[-1]["stream_id"], result("c1"))
    assert (refusal(refused), refused[0]["details"]["reason"]) == ("TOOL_ERROR", "ended")
    assert await traces(stage) == before


@requirement("R85", "R86", "R87")
async def test_a_refusal_on_a_closed_stream_tells_what_closed_it(stage: Stage) -> None:
    reasons = []
    for closing in ("results", "resume", "turn"):
        pause = await paused(stage, f"of-{closing}")
        stage.provider.add("Done.")
        match closing:
            case "results":
                await stage.pass_results(pause.stream_id, result(f"of-{closing}"))
            case "resume":
                await stage.resume(pause, result(f"of-{closing}"))
            case _:
                await stage.play("Never mind.")
        refused = await stage.pass_results(pause.stream_id, result(f"of-{closing}"))
        reasons.append((refusal(refused), refused[0]["details"]["reason"]))

    assert reasons == [("TOOL_ERROR", "ended"), ("TOOL_ERROR", "resumed"), ("TOOL_ERROR", "new_turn")]


@requirement("R89")
async def test_of_two_posts_of_results_at_once_one_goes_on(stage: Stage) -> None:
    pause = await paused(stage, "c1")
    hold = Hold()
    stage.provider.add([hold, "Warm."])

    both = [asyncio.create_task(stage.pass_results(pause.stream_id, result("c1", text))) for text in ("21", "22")]
    (first,), (other,) = await asyncio.wait(both, timeout=20, return_when=asyncio.FIRST_COMPLETED)
    assert refusal(await first) == "SYS_INVALID_STATE"
    hold.release()
    done = await asyncio.wait_for(other, 20)
    assert done[-1]["type"] == "final_response"
    assert len(stage.provider.requests) == 2
    assert [said for said in await stage.said() if said[0] == "tool"] == [("tool", done[0]["tool_result"])]


async def begins(stage: Stage, stream_id: str) -> str:
    """Give the id of the first event behind the stream's first pause."""
    (stream,) = await rows(stage.database, "SELECT fences FROM streams WHERE stream_id = $1", stream_id)
    return f"{stream['fences'][1]}-1"


async def test_whoever_posts_accepted_results_again_is_told_where_their_continuation_begins(stage: Stage) -> None:
    pause = await paused(stage, "c1")
    hold = Hold()
    stage.provider.add([hold, "Warm."])
    posting = asyncio.create_task(stage.pass_results(pause.stream_id, result("c1")))
    await asyncio.wait_for(hold.reached.wait(), 20)
    told = {"stream_id": pause.stream_id, "first_event_id": await begins(stage, pause.stream_id)}
    refused = await stage.pass_results(pause.stream_id, result("c1"))
    assert (refusal(refused), refused[0]["details"]) == ("SYS_INVALID_STATE", told)

    hold.release()
    await asyncio.wait_for(posting, 20)
    for pause_id in (None, pause.pause_id):
        refused = await stage.pass_results(pause.stream_id, result("c1"), pause_id=pause_id)
        assert (refusal(refused), refused[0]["details"]) == (
            "TOOL_ERROR",
            {"reason": "ended", "continued_on": None, **told},
        )
    refused = await stage.pass_results(pause.stream_id, result("c1"), pause_id="pause_other")
    assert "first_event_id" not in refused[0]["details"]


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("seen", ["held", "taken"])
async def test_of_two_posts_in_the_same_instant_the_other_is_told_where_the_continuation_begins(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    seen: str,
    ended: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    pause = await paused(stage, "c1")
    hold, find = Hold(), Queries.pause
    stage.provider.add([hold, "Warm."])
    first: list[asyncio.Task[list[Chunk]]] = []

    async def found(queries: Queries, conversation: UUID, pause_id: str) -> PauseRecord | None:
        monkeypatch.setattr(Queries, "pause", find)
        before = await find(queries, conversation, pause_id)
        first.append(asyncio.create_task(stage.pass_results(pause.stream_id, result("c1"))))
        await asyncio.wait_for(hold.reached.wait(), 20)
        if ended:
            hold.release()
            await asyncio.wait_for(asyncio.shield(first[0]), 20)
        return before if seen == "held" else await find(queries, conversation, pause_id)

    monkeypatch.setattr(Queries, "pause", found)
    refused = await stage.pass_results(pause.stream_id, result("c1"))
    told = {"stream_id": pause.stream_id, "first_event_id": await begins(stage, pause.stream_id)}
    assert (refusal(refused), refused[0]["details"]) == ("SYS_INVALID_STATE", told)
    hold.release()
    assert (await asyncio.wait_for(first[0], 20))[-1]["type"] == "final_response"


async def test_a_result_without_the_tools_name_gets_it_from_the_pause(stage: Stage) -> None:
    pause = await paused(stage, "c1")
    stage.provider.add("Warm.")

    done = await stage.pass_results(pause.stream_id, ToolResult("c1", "", "21"))
    assert one(done, "tool_result_emission")["tool_name"] == "get_weather"
    assert stage.provider.requests[-1].messages[-1].name == "get_weather"


async def test_a_failed_result_is_told_to_the_model_as_a_failure(stage: Stage) -> None:
    pause = await paused(stage, "c1")
    stage.provider.add("I could not find out.")
    failed = ToolResult("c1", "get_weather", None, is_error=True, error_details={"code": "X", "message": "no network"})

    done = await stage.pass_results(pause.stream_id, failed)
    assert one(done, "tool_result_emission")["is_success"] is False
    assert one(done, "tool_result_emission")["error_message"] == "no network"
    told = stage.provider.requests[-1].messages[-1]
    assert told.is_error
    assert "no network" in str(told.content)


async def test_results_on_a_stream_that_is_not_there_are_refused(stage: Stage) -> None:
    assert refusal(await stage.pass_results("st_" + "0" * 44, result("c1"))) == "SYS_RESOURCE_NOT_FOUND"
    assert refusal(await stage.pass_results("nonsense", result("c1"))) == "SYS_RESOURCE_NOT_FOUND"
