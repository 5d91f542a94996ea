"""The gate of a turn across its pause: kept with it, replaced by that of the results, never another conversation's."""

from typing import Any

from app.domain.tools import ToolResult
from app.domain.turn import ResultsInput, TurnOptions
from app.providers.scripted import call
from tests.requirements import requirement
from tests.stage import ADA, WEATHER, Stage, one, result

NO_CLOCK = TurnOptions(tool_gate={"deny": ["current_time"]})


async def paused(stage: Stage, **more: Any) -> dict[str, Any]:
    stage.provider.add([call("get_weather", {"city": "Berlin"}, id="w1")])
    return one(await stage.play("Weather and time?", tools=[WEATHER], **more), "tool_call_request")


def refused(stage: Stage) -> bool:
    """Tell whether the call of the clock was refused: the model reads its answer in the last request."""
    return "does not allow calls of the tool current_time" in str(stage.provider.requests[-1].messages[-1].content)


async def passed(stage: Stage, stream_id: str, options: TurnOptions, *results: ToolResult) -> None:
    started = await stage.runtime.pass_results(ResultsInput(ADA, results, stream_id=stream_id, options=options))
    async for _ in await stage.runtime.open_operation(started):  # type: ignore[arg-type]
        pass


@requirement("R156", "R157", "R158")
async def test_a_continuation_without_a_gate_of_its_own_has_the_one_of_its_turn(stage: Stage) -> None:
    request = await paused(stage, options=NO_CLOCK)
    stage.provider.add([call("current_time", id="t1")], "Done.")

    await stage.pass_results(request["stream_id"], result("w1"))

    assert refused(stage)


@requirement("R155")
async def test_a_continuation_that_is_given_a_gate_is_judged_by_that(stage: Stage) -> None:
    request = await paused(stage, options=NO_CLOCK)
    stage.provider.add([call("current_time", id="t1")], "Done.")

    await passed(stage, request["stream_id"], TurnOptions(tool_gate={"deny": ["nothing"]}), result("w1"))

    assert not refused(stage)


@requirement("R159")
async def test_the_gate_of_another_conversation_of_the_session_is_never_used(stage: Stage) -> None:
    request = await paused(stage, session="s")
    stage.provider.add("Hello.")
    await stage.play("Hi.", conversation="chat-2", session="s", options=NO_CLOCK)
    stage.provider.add([call("current_time", id="t1")], "Done.")

    await stage.pass_results(request["stream_id"], result("w1"))

    assert not refused(stage)
