"""Calls of a pause that the results leave out: answered in their place, so that no call is ever without an answer."""

import json

import pytest

from app.domain.turn import Pause
from app.providers.scripted import Hold, call
from tests.requirements import requirement
from tests.stage import ADA, WEATHER, Stage, result, running_stage, types, wire
from tests.turn.playing import Playing, end, stop

NOT_RUN = "EXTERNAL_TOOL_NOT_RUN"


async def paused(stage: Stage) -> Pause:
    stage.provider.add([call("get_weather", {"city": city}, id=city) for city in ("Berlin", "Rome", "Oslo")])
    await stage.play("Weather?", tools=[WEATHER])
    pending = await stage.pending()
    assert pending is not None
    return pending


@requirement("R93", "R94", "R95", "R96", "R97", "R98", "R99", "R101", "R105")
@pytest.mark.parametrize("way", ["stream", "resume"])
async def test_calls_without_a_result_get_stand_ins_behind_the_hosts_results(stage: Stage, way: str) -> None:
    pause = await paused(stage)
    stage.provider.add("Rome is warm.")
    if way == "stream":
        done = await stage.pass_results(pause.stream_id, result("Rome", "25"))
    else:
        done = await stage.resume(pause, result("Rome", "25"))

    # The host is told of what it passed, and of no result that it did not pass.
    assert types(done).count("tool_result_emission") == 1
    stored = await stage.messages()
    assert [message.tool_call_id for message in stored[2:-1]] == ["Rome", "Berlin", "Oslo"]
    assert [message.is_error for message in stored[2:-1]] == [False, True, True]
    assert [NOT_RUN in str(message.content) for message in stored[2:-1]] == [False, True, True]
    # One request brings all of them to the model, in the order of the calls.
    assert len(stage.provider.requests) == 2
    told = wire(stage.provider.requests[-1])[-3:]
    assert [message["tool_call_id"] for message in told] == ["Berlin", "Rome", "Oslo"]
    assert [NOT_RUN in message["content"] for message in told] == [True, False, True]


@requirement("R96", "R97")
async def test_stand_ins_are_stored_before_the_model_writes_again(stage: Stage) -> None:
    hold = Hold()
    pause = await paused(stage)
    stage.provider.add([hold, "Rome is warm."])
    passing = stage.host.handle_tool_results(ADA, pause.stream_id, [result("Rome", "25")])
    await anext(passing)
    await hold.reached.wait()

    assert [message.role for message in await stage.messages()] == ["user", "assistant", "tool", "tool", "tool"]
    hold.release()
    assert [chunk async for chunk in passing][-1]["type"] == "final_response"


@requirement("R104", "R73")
async def test_the_result_of_a_call_that_was_left_out_comes_too_late(stage: Stage) -> None:
    pause = await paused(stage)
    stage.provider.add("Rome is warm.")
    first = await stage.pass_results(pause.stream_id, result("Rome", "25"))
    before = await stage.messages()
    late = await stage.pass_results(pause.stream_id, result("Berlin", "21"))

    assert first[-1]["type"] == "final_response"
    assert [(chunk["type"], chunk["code"]) for chunk in late] == [("error", "TOOL_ERROR")]
    assert await stage.messages() == before


@requirement("R93", "R94")
async def test_a_stand_in_says_that_there_is_no_result(stage: Stage) -> None:
    pause = await paused(stage)
    stage.provider.add("Rome is warm.")
    await stage.pass_results(pause.stream_id, result("Rome", "25"))

    content = str((await stage.messages())[3].content)
    assert content.startswith("The tool get_weather failed: ")
    details = json.loads(content.partition(": ")[2])
    assert details == {"code": NOT_RUN, "message": "The host did not run this call, so it has no result."}


class OneAtATime(Playing):
    """A host's GMI that takes one result and no more."""

    takes_results_together = False


@requirement("R102", "R103")
async def test_a_gmi_that_takes_one_result_is_told_that_alone_while_all_answers_are_stored(
    shared_database: str,
) -> None:
    gmi = OneAtATime([stop("c1", "c2")], [end("Warm.")])
    async with running_stage(shared_database, gmis=gmi) as stage:
        request = (await stage.play("Weather?", tools=[WEATHER]))[-1]
        two = await stage.pass_results(request["stream_id"], result("c1", "21"), result("c2", "22"))
        assert [chunk.get("code") for chunk in two] == ["SYS_INVALID_STATE"]

        done = await stage.pass_results(request["stream_id"], result("c2", "22"))

        assert done[-1]["type"] == "final_response"
        answers = [message for message in gmi.asked[-1].messages if message.role == "tool"]
        assert [(message.tool_call_id, message.content) for message in answers] == [("c2", "22")]
        stored = [message for message in await stage.messages() if message.role == "tool"]
        assert [(message.tool_call_id, message.is_error) for message in stored] == [("c2", False), ("c1", True)]
        assert NOT_RUN in str(stored[-1].content)
