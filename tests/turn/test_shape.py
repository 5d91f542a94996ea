"""The shape of a turn: its stages in their order, who answers, and what a host in the same process is told."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.domain.chunks import GmiChunk, GmiOutput, TextDelta, ToolCallRequest
from app.domain.turn import Caller
from app.providers.scripted import Hold, call
from app.turn.gmi.base import GmiTurnInput
from tests.databases import rows
from tests.requirements import requirement
from tests.stage import ADA, CHAT, WEATHER, Stage, one, result, running_stage, turn_input, types
from tests.turn.playing import Playing, asks, end, stop

PERSONAS = {
    "demo": "id: demo\nname: Demo\nsystem_prompt: You are the default.\n",
    "poet": "id: poet\nname: Poet\nsystem_prompt: You are a poet.\n",
}


@pytest.fixture
async def stage_of_two(shared_database: str, tmp_path: Path) -> AsyncIterator[Stage]:
    """A stage with the personas `demo` (the default) and `poet`."""
    for name, content in PERSONAS.items():
        (tmp_path / f"{name}.yaml").write_text(content, encoding="utf-8")
    async with running_stage(shared_database, personas_dir=tmp_path) as stage:
        yield stage


@requirement("R1", "R2", "R22")
async def test_an_accepted_turn_runs_one_gmi_turn_after_its_preparation(shared_database: str) -> None:
    playing = Playing([TextDelta("Hello."), end("Hello.")])
    async with running_stage(shared_database, gmis=playing) as stage:
        chunks = await stage.play("Hi.")

    assert playing.acquired == ["demo"]  # the facade had put in the default persona before a GMI was taken
    assert len(playing.asked) == 1
    shown = [
        chunk["updates"].get("execution_lifecycle", {}).get("phase", "routing")
        if chunk["type"] == "metadata_update"
        else chunk["type"]
        for chunk in chunks
    ]
    assert shown == [
        "system_progress", "planned", "routing", "executing", "text_delta", "completed", "final_response",
    ]  # fmt: skip


@requirement("R2")
async def test_no_gmi_is_taken_for_a_turn_that_preparation_refuses_first(shared_database: str) -> None:
    playing = Playing()
    async with running_stage(shared_database, gmis=playing) as stage:
        await stage.play("  ")

    assert playing.acquired == []


@requirement("R21", "R22")
async def test_the_stream_is_stored_before_the_model_is_asked(stage: Stage) -> None:
    hold = Hold()
    stage.provider.add([hold, "Hello."])
    turn = stage.turn("Hi.")
    stream_id = (await anext(turn))["stream_id"]

    await hold.reached.wait()
    assert (await stage.runtime.stream_state(ADA, stream_id)).status.value == "running"
    assert await stage.said() == [("user", "Hi.")]
    hold.release()
    assert [chunk async for chunk in turn][-1]["type"] == "final_response"


@requirement("R4", "R5", "R8")
async def test_a_stopped_turn_goes_on_with_one_result(stage: Stage) -> None:
    stage.provider.add([call("get_weather", {"city": "Berlin"}, id="c1")], "It is 21 degrees.")
    request = (await stage.play("Weather?", tools=[WEATHER]))[-1]
    pending = await stage.pending()

    assert request["type"] == "tool_call_request"
    assert pending is not None
    assert (pending.stream_id, pending.pause_id) == (request["stream_id"], request["pause_id"])
    passed = stage.host.handle_tool_result(ADA, pending.stream_id, result("c1"))
    assert one([chunk async for chunk in passed], "final_response")["final_response_text"] == "It is 21 degrees."


@requirement("R6")
async def test_a_stopped_turn_goes_on_with_several_results(stage: Stage) -> None:
    stage.provider.add([call("get_weather", id="c1"), call("get_weather", id="c2")], "Both are warm.")
    request = (await stage.play("Weather?", tools=[WEATHER]))[-1]

    done = await stage.pass_results(request["stream_id"], result("c1", "21"), result("c2", "22"))
    assert one(done, "final_response")["final_response_text"] == "Both are warm."
    assert [message.content for message in stage.provider.requests[-1].messages[-2:]] == ["21", "22"]


@requirement("R7")
async def test_a_stopped_turn_goes_on_by_the_pending_request_that_the_conversation_stores(stage: Stage) -> None:
    stage.provider.add([call("get_weather", id="c1")], "It is 21 degrees.")
    await stage.play("Weather?", tools=[WEATHER])
    pending = await stage.pending()

    assert pending is not None
    done = await stage.resume(pending, result("c1"))
    assert one(done, "final_response")["final_response_text"] == "It is 21 degrees."
    assert done[-1]["stream_id"] != pending.stream_id


@requirement("R8")
async def test_only_the_user_of_a_conversation_is_given_its_pending_request(stage: Stage) -> None:
    stage.provider.add([call("get_weather", id="c1")])
    await stage.play("Weather?", tools=[WEATHER])

    assert await stage.pending() is not None
    for stranger in (Caller("eve"), Caller("ada", "acme")):
        with pytest.raises(Exception, match="There is no conversation"):
            await stage.pending(caller=stranger)


@requirement("R9", "R10")
async def test_the_default_persona_answers_unless_the_turn_names_one(stage_of_two: Stage) -> None:
    stage_of_two.provider.add("Plain.", "Rhyme.", "Plain again.")
    said = [await stage_of_two.play("Hi.", persona_id=name) for name in (None, "poet", "")]

    assert [chunks[-1]["active_persona_details"]["id"] for chunks in said] == ["demo", "poet", "demo"]
    prompts = [request.messages[0].content for request in stage_of_two.provider.requests]
    assert prompts == ["You are the default.", "You are a poet.", "You are the default."]


@requirement("R15")
async def test_a_blank_input_gets_past_the_facade_and_is_refused_by_phase_1(stage: Stage) -> None:
    refused = await stage.play("  \n")

    assert [(chunk["type"], chunk["code"]) for chunk in refused] == [("error", "SYS_VALIDATION_ERROR")]
    assert stage.provider.requests == []
    assert await rows(stage.database, "SELECT 1 FROM conversations") == []


@requirement("R16")
async def test_the_facade_serves_whatever_caller_it_is_given(stage: Stage) -> None:
    stage.provider.add("Hello.", "Hello.")
    for caller in (Caller(""), Caller("nobody that was ever seen", "no organization that there is")):
        chunks = await stage.play("Hi.", caller=caller, conversation="of-" + str(len(caller.user_id)))
        assert chunks[-1]["type"] == "final_response"


@requirement("R17")
async def test_the_facade_counts_no_calls(stage: Stage) -> None:
    stage.provider.add(*["Hello."] * 30)
    done = await asyncio.gather(*(stage.play("Hi.", conversation=f"chat-{number}") for number in range(30)))
    assert {chunks[-1]["type"] for chunks in done} == {"final_response"}


async def test_a_request_for_calls_of_the_runtime_does_not_end_the_turn(shared_database: str) -> None:
    playing = Playing([ToolCallRequest((asks("own"),)), TextDelta("Done."), end()], [stop("c1")])
    async with running_stage(shared_database, gmis=playing) as stage:
        chunks = await stage.play("Go.")

    request = one(chunks, "tool_call_request")
    assert (request["execution_mode"], request["requires_external_tool_result"]) == ("internal", False)
    assert types(chunks)[-1] == "final_response"


async def test_a_turn_goes_on_when_its_host_leaves(stage: Stage) -> None:
    hold = Hold()
    stage.provider.add(["One, ", hold, "two."])
    turn = stage.turn("Count.")
    stream_id = (await anext(turn))["stream_id"]
    await turn.aclose()  # type: ignore[attr-defined]

    await hold.reached.wait()
    hold.release()
    frames = await stage.runtime.open_events(ADA, stream_id, None, follow=False)
    assert frames is not None
    assert b'"One, two."' in b"".join([piece async for piece in frames])
    assert await stage.said() == [("user", "Count."), ("assistant", "One, two.")]


class Failing(Playing):
    """Its GMI raises, which a GMI must not."""

    async def process_turn_stream(self, turn: GmiTurnInput) -> AsyncIterator[GmiChunk | GmiOutput]:
        self.asked.append(turn)
        yield TextDelta("Hel")
        message = "the GMI of a host fell over"
        raise RuntimeError(message)


async def test_a_gmi_that_raises_ends_the_turn_with_an_error_and_the_next_turn_works(shared_database: str) -> None:
    async with running_stage(shared_database, gmis=Failing()) as stage:
        failed = await stage.play("Hi.")
    assert (failed[-1]["type"], failed[-1]["code"]) == ("error", "SYS_INTERNAL_SERVER_ERROR")

    async with running_stage(shared_database) as stage:
        stage.provider.add("Hello.")
        assert (await stage.play("Again."))[-1]["final_response_text"] == "Hello."


async def test_a_turn_input_keeps_the_conversation_of_its_caller() -> None:
    of_ada, of_acme = turn_input("Hi."), turn_input("Hi.", caller=Caller("ada", "acme"))
    assert (of_ada.conversation_id, of_acme.conversation_id) == (CHAT, CHAT)
    assert of_ada.conversation != of_acme.conversation
