"""When an operation stops for its host: one rule for turn, continuation and resume, tried with any output of a GMI."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from app.domain.chunks import GmiOutput, TextDelta, ToolCallRequest
from app.domain.turn import Pause
from app.domain.usage import Usage
from app.turn.facade.host import Chunk
from tests.requirements import requirement
from tests.stage import ADA, WEATHER, Stage, one, result, running_stage, types
from tests.turn.playing import Act, Playing, asks, end, stop

Way = Callable[[Stage], Awaitable[list[Chunk]]]


async def by_turn(stage: Stage) -> list[Chunk]:
    return await stage.play("Go on.", tools=[WEATHER])


async def by_results(stage: Stage) -> list[Chunk]:
    pending = await paused(stage)
    return await stage.pass_results(pending.stream_id, result("c0"))


async def by_resume(stage: Stage) -> list[Chunk]:
    return await stage.resume(await paused(stage), result("c0"))


async def paused(stage: Stage) -> Pause:
    await stage.play("Begin.", tools=[WEATHER])
    pending = await stage.pending()
    assert pending is not None
    return pending


WAYS = pytest.mark.parametrize("way", [by_turn, by_results, by_resume])


@asynccontextmanager
async def playing(database: str, way: Way, *acts: Act) -> AsyncIterator[Stage]:
    """Run a stage whose GMI plays the acts; a way that continues something finds a pause for the call c0."""
    before: list[Act] = [] if way is by_turn else [[stop("c0")]]
    async with running_stage(database, gmis=Playing(*before, *acts)) as stage:
        yield stage


async def status_of(stage: Stage, chunks: list[Chunk]) -> str:
    view = await stage.runtime.stream_state(ADA, chunks[-1]["stream_id"])
    return view.status.value


@requirement("R4", "R23", "R27", "R28", "R219", "R221")
@WAYS
async def test_output_that_is_not_final_and_names_calls_stops_with_one_request_for_them(
    shared_database: str, way: Way
) -> None:
    async with playing(shared_database, way, [TextDelta("Let me see."), stop("c1", "c2", text="Let me see.")]) as stage:
        chunks = await way(stage)

        request = one(chunks, "tool_call_request")
        assert chunks[-1] is request
        assert (request["execution_mode"], request["requires_external_tool_result"]) == ("external", True)
        assert request["tool_calls"] == [asks("c1").asked(), asks("c2").asked()]
        pending = await stage.pending()
        assert pending is not None
        assert (pending.pause_id, list(pending.tool_calls)) == (request["pause_id"], request["tool_calls"])
        assert await status_of(stage, chunks) == "paused"


@requirement("R24", "R29", "R31", "R32", "R33", "R34", "R36", "R38", "R46")
@WAYS
async def test_final_output_that_lists_calls_ends_with_them_in_the_final_response(
    shared_database: str, way: Way
) -> None:
    async with playing(shared_database, way, [TextDelta("Done."), end("Done.", "c1", "c2")]) as stage:
        chunks = await way(stage)

        final = one(chunks, "final_response")
        assert chunks[-1] is final
        assert final["final_tool_calls"] == [asks("c1").public(), asks("c2").public()]
        assert "tool_call_request" not in types(chunks)
        assert await stage.pending() is None
        assert await status_of(stage, chunks) == "completed"


@requirement("R25", "R37", "R39")
@WAYS
@pytest.mark.parametrize("is_final", [False, True])
async def test_output_without_calls_ends_whether_or_not_it_is_final(
    shared_database: str,
    way: Way,
    is_final: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    output = GmiOutput(is_final=is_final, response_text="Done.")
    async with playing(shared_database, way, [TextDelta("Done."), output]) as stage:
        chunks = await way(stage)

        assert chunks[-1]["type"] == "final_response"
        assert chunks[-1]["final_tool_calls"] is None
        assert await stage.pending() is None
        assert await status_of(stage, chunks) == "completed"
        late = await stage.pass_results(chunks[-1]["stream_id"], result("c1"))
        assert [chunk["code"] for chunk in late] == ["TOOL_ERROR"]


@requirement("R30", "R228", "R229")
@WAYS
async def test_a_request_for_the_host_among_the_chunks_stops_nothing_by_itself(shared_database: str, way: Way) -> None:
    streamed = ToolCallRequest((asks("c1"),), external=True)
    async with playing(shared_database, way, [streamed, TextDelta("Done."), end("Done.")]) as stage:
        chunks = await way(stage)

        assert "tool_call_request" not in types(chunks)
        assert chunks[-1]["final_response_text"] == "Done."
        assert await stage.pending() is None


@requirement("R35")
@WAYS
async def test_a_refused_call_that_final_output_lists_is_told_and_waits_for_nobody(
    shared_database: str, way: Way
) -> None:
    refused = replace(asks("c1"), name="forbidden")
    output = replace(end("I may not do that."), tool_calls=(refused,))
    async with playing(shared_database, way, [output]) as stage:
        chunks = await way(stage)

        assert chunks[-1]["final_tool_calls"] == [refused.public()]
        assert await stage.pending() is None


@requirement("R40", "R41")
@WAYS
@pytest.mark.parametrize("output", [end("Done."), end("Done.", "c1"), end(None), GmiOutput(is_final=False)])
async def test_an_operation_that_does_not_stop_makes_one_final_response(
    shared_database: str, way: Way, output: GmiOutput
) -> None:
    async with playing(shared_database, way, [output]) as stage:
        assert types(await way(stage)).count("final_response") == 1


@requirement("R42", "R43", "R44", "R45", "R47")
async def test_turn_continuation_and_resume_build_equal_final_responses_of_equal_output(shared_database: str) -> None:
    output = replace(end("**Done**, [see](https://example.org).", "c1"), usage=Usage(10, 5))
    finals = []
    for way in (by_turn, by_results, by_resume):
        async with playing(shared_database, way, [output]) as stage:
            finals.append(one(await way(stage), "final_response"))
            await stage.runtime.delete_conversation(ADA, "chat-1")

    names_of_one = {"stream_id", "timestamp", "turn_id", "message_id"}
    first, *others = [{k: v for k, v in final.items() if k not in names_of_one} for final in finals]
    assert others == [first, first]
    assert first["final_response_text"] == output.response_text
    assert first["final_response_text_plain"] == "Done, see."
    assert (first["usage"]["prompt_tokens"], first["usage"]["completion_tokens"]) == (10, 5)


@requirement("R47")
async def test_the_usage_of_a_continued_turn_counts_what_it_used_before_its_pause(shared_database: str) -> None:
    before, after = replace(stop("c0"), usage=Usage(10, 5)), replace(end(), usage=Usage(30, 2))
    async with running_stage(shared_database, gmis=Playing([before], [after])) as stage:
        chunks = await by_results(stage)

    usage = one(chunks, "final_response")["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (40, 7, 47)
