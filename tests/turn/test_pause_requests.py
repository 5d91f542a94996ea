"""Which request a host reads when a turn stops: one, behind the stored pause, naming exactly the calls of it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.domain.chunks import GmiChunk, TextDelta, ToolCallRequest
from app.domain.turn import Caller
from app.providers.scripted import call
from app.turn.facade.host import Chunk
from tests.databases import rows
from tests.requirements import requirement
from tests.stage import WEATHER, Stage, one, result, running_stage, types
from tests.turn.pausing import asks_for, by_results, by_resume, held, paused, weather
from tests.turn.playing import Act, Playing, asks, stop

OWN_WORDS = ToolCallRequest((asks("c1"), asks("c2")), external=True, rationale="Two cities.", metadata={"why": "asked"})
WAYS = pytest.mark.parametrize("way", ["turn", "results", "resume"])


async def run(database: str, way: str, act: Act) -> list[Chunk]:
    """Run an act as a turn, or as what follows a pause."""
    before: list[Act] = [] if way == "turn" else [[stop("c0")]]
    async with running_stage(database, gmis=Playing(*before, act)) as stage:
        chunks = await stage.play("Go on.", tools=[WEATHER])
        if way != "turn":
            pause = await held(stage)
            chunks = await (by_results if way == "results" else by_resume)(stage, pause, result("c0"))
        request = chunks[-1]
        assert request is one(chunks, "tool_call_request")
        pause = await held(stage)
        assert (request["pause_id"], request["tool_calls"]) == (pause.pause_id, list(pause.tool_calls))
        assert pause.rationale == request["rationale"]
        await stage.runtime.delete_conversation(Caller("ada"), "chat-1")
        return chunks


@requirement("R219", "R221", "R222", "R223", "R224", "R348")
@WAYS
async def test_the_one_streamed_request_that_names_the_calls_of_the_stop_is_read_with_its_own_words(
    shared_database: str, way: str
) -> None:
    act: Act = [OWN_WORDS, TextDelta("Let me see."), stop("c2", "c1", text="Let me see.")]
    chunks = await run(shared_database, way, act)

    # It was streamed ahead of the text, and read behind it: it waits for the output.
    assert types(chunks)[-2:] == ["text_delta", "tool_call_request"]
    assert (chunks[-1]["rationale"], chunks[-1]["metadata"]) == ("Two cities.", {"why": "asked"})


@requirement("R221", "R222", "R225", "R226", "R227", "R348")
@pytest.mark.parametrize(
    ("way", "streamed"),
    [
        ("turn", []),
        ("results", []),
        ("resume", []),
        ("turn", [OWN_WORDS, OWN_WORDS]),
        ("results", [replace(OWN_WORDS, calls=(asks("c1"),)), replace(OWN_WORDS, calls=(asks("c2"),))]),
        ("resume", [replace(OWN_WORDS, calls=(asks("c1"),))]),
        ("turn", [replace(OWN_WORDS, calls=(asks("c1"), asks("c2"), asks("c3")))]),
        ("results", [replace(OWN_WORDS, calls=(asks("c1"), asks("c3")))]),
        ("resume", [replace(OWN_WORDS, calls=(asks("c1"), asks("c1")))]),
    ],
    ids=[
        "none in a turn",
        "none by results",
        "none by a resume",
        "two",
        "two halves",
        "fewer",
        "more",
        "others",
        "one twice",
    ],
)
async def test_any_other_streamed_requests_are_replaced_by_the_runtimes_own(
    shared_database: str, way: str, streamed: Sequence[GmiChunk]
) -> None:
    chunks = await run(shared_database, way, [*streamed, stop("c1", "c2", text="Let me see.")])

    assert chunks[-1]["rationale"] == "Let me see."
    assert "metadata" not in chunks[-1]
    assert [one_of["id"] for one_of in chunks[-1]["tool_calls"]] == ["c1", "c2"]


@requirement("R231")
@WAYS
async def test_a_request_without_calls_is_never_read(shared_database: str, way: str) -> None:
    empty = [ToolCallRequest((), external=True), ToolCallRequest(()), ToolCallRequest((), external=True)]
    chunks = await run(shared_database, way, [*empty, OWN_WORDS, stop("c1", "c2")])

    assert types(chunks).count("tool_call_request") == 1
    assert chunks[-1]["rationale"] == "Two cities."


@requirement("R230", "R232", "R233")
async def test_a_request_for_the_gmis_own_calls_is_read_at_once_and_ends_nothing(stage: Stage) -> None:
    stage.provider.add(["Wait.", call("current_time", {}, id="own-1"), weather("c1")])
    chunks = await stage.play("What is the weather, and when?", tools=[WEATHER])

    internal, external = [chunk for chunk in chunks if chunk["type"] == "tool_call_request"]
    assert (internal["execution_mode"], internal["requires_external_tool_result"]) == ("internal", False)
    assert [one_of["id"] for one_of in internal["tool_calls"]] == ["own-1"]
    assert "pause_id" not in internal
    assert (external["execution_mode"], external["requires_external_tool_result"]) == ("external", True)
    assert [one_of["id"] for one_of in external["tool_calls"]] == ["c1"]
    assert chunks[-1] is external


@requirement("R220", "R221", "R222")
async def test_whoever_reads_the_request_finds_the_pause_stored(stage: Stage) -> None:
    held_query = "SELECT pause_id FROM pending_external_tool_requests WHERE state = 'held'"
    stage.provider.add(asks_for("c1"), asks_for("c2"))
    async for chunk in stage.turn("What is the weather?", tools=[WEATHER]):
        if chunk["type"] == "tool_call_request":
            assert [row["pause_id"] for row in await rows(stage.database, held_query)] == [chunk["pause_id"]]
    pause = await held(stage)
    async for chunk in stage.host.handle_tool_results(Caller("ada"), pause.stream_id, [result("c1")]):
        if chunk["type"] == "tool_call_request":
            assert chunk["pause_id"] != pause.pause_id
            assert [row["pause_id"] for row in await rows(stage.database, held_query)] == [chunk["pause_id"]]


@requirement("R345")
async def test_each_call_of_a_final_output_was_run_or_refused_by_the_gmi_itself(stage: Stage) -> None:
    unknown = call("no_such_tool", {}, id="refused")
    stage.provider.add([call("current_time", {}, id="own-1"), unknown], "It is late.")
    done = await stage.play("What is the time?", tools=[WEATHER])

    final = one(done, "final_response")
    assert [one_of["id"] for one_of in final["final_tool_calls"]] == ["own-1", "refused"]
    answered = {message.tool_call_id: message.is_error for message in stage.provider.requests[-1].messages}
    assert (answered["own-1"], answered["refused"]) == (False, True)
    assert await stage.pending() is None


async def test_a_call_without_an_id_or_under_one_of_this_turn_gets_its_own(stage: Stage) -> None:
    stage.provider.add([call("current_time", {}, id="c1")], [weather("c1"), weather("c2"), weather("c2"), weather("")])
    request = (await stage.play("What is the weather?", tools=[WEATHER]))[-1]

    ids = [one_of["id"] for one_of in request["tool_calls"]]
    assert ids[1] == "c2"
    assert all(ids)
    assert len({*ids, "c1"}) == 5


async def test_a_request_for_two_calls_under_one_id_gives_each_its_own(stage: Stage) -> None:
    pause = await paused(stage, "c1")
    stage.provider.add([weather("c1", "Rome"), weather("c1", "Oslo")])
    again = await by_results(stage, pause, result("c1"))

    ids = [one_of["id"] for one_of in again[-1]["tool_calls"]]
    assert len({*ids, "c1"}) == 3
    stage.provider.add("Done.")
    assert (await by_results(stage, await held(stage), *map(result, ids)))[-1]["final_response_text"] == "Done."
