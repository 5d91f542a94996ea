"""Tool rounds: side by side up to a limit, in call order, answered whole, within what the turn allows."""

import asyncio

import pytest

from app.domain.chunks import GmiChunk, ToolResultRecorded
from app.domain.messages import ToolCall
from app.domain.tools import ToolResult, ToolSpec
from app.domain.turn import TurnOptions
from app.providers.scripted import call
from app.tools.base import ToolRules
from tests.gmi.rig import HOST_TOOL, Echo, Rig, letters
from tests.requirements import requirement


def results(chunks: list[GmiChunk]) -> list[ToolResult]:
    return [chunk.result for chunk in chunks if isinstance(chunk, ToolResultRecorded)]


def codes(chunks: list[GmiChunk]) -> list[str | None]:
    return [(result.error_details or {}).get("code") for result in results(chunks)]


async def test_calls_of_a_step_run_side_by_side_up_to_the_limit_and_are_told_in_call_order() -> None:
    slow, quick = Echo("slow", gate=asyncio.Event()), Echo("quick")
    asked = [call("slow", {"n": n}, id=f"s{n}") for n in range(3)] + [call("quick", id="q")]
    rig = Rig([asked, ["Done."]], tools=[slow, quick])

    running = asyncio.create_task(rig.run(tool_concurrency=4))
    await slow.until_begun(3)
    await quick.until_begun(1)
    assert slow.gate is not None
    slow.gate.set()
    chunks, _ = await running

    assert [result.tool_call_id for result in results(chunks)] == ["s0", "s1", "s2", "q"]
    assert [made.id for made in rig.rounds[0][0]] == ["s0", "s1", "s2", "q"]


async def test_no_more_calls_run_at_once_than_the_limit_says() -> None:
    slow = Echo("slow", gate=asyncio.Event())
    rig = Rig([[call("slow", {"n": n}, id=f"s{n}") for n in range(5)], ["Done."]], tools=[slow])

    running = asyncio.create_task(rig.run(tool_concurrency=2))
    await slow.until_begun(2)
    assert slow.gate is not None
    slow.gate.set()
    await running

    assert (slow.most_active, len(slow.ran)) == (2, 5)


async def test_a_round_that_is_cancelled_leaves_no_tool_running() -> None:
    slow = Echo("slow", gate=asyncio.Event())
    rig = Rig([[call("slow", {"n": n}, id=f"s{n}") for n in range(2)]], tools=[slow])

    running = asyncio.create_task(rig.run())
    await slow.until_begun(2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert slow.active == 0


async def test_a_tool_has_its_own_time_and_its_own_size() -> None:
    late = Echo("late", gate=asyncio.Event(), rules=ToolRules(timeout=0.01))
    long = Echo("long", rules=ToolRules(max_output_bytes=10))
    rig = Rig([[call("late", id="c1"), call("long", {"a": "x" * 20}, id="c2")], ["Done."]], tools=[late, long])

    chunks, output = await rig.run()

    assert codes(chunks) == ["TOOL_TIMEOUT", "TOOL_OUTPUT_TOO_LARGE"]
    assert output.response_text == "Done."


async def test_output_over_the_limit_for_all_is_an_error_that_tells_the_sizes() -> None:
    rig = Rig([[call("echo", {"a": "x" * 2000}, id="c1")], ["Done."]], tools=[Echo()])

    chunks, _ = await rig.run()

    assert "2008 bytes and may give 1000" in str(results(chunks)[0].error_details)


async def test_a_tool_that_the_persona_does_not_have_is_not_run_though_the_runtime_has_it() -> None:
    hidden = Echo("hidden")
    rig = Rig([[call("hidden", id="c1"), call("nobody", id="c2")], ["Done."]], tools=[hidden, Echo()])

    chunks, _ = await rig.run(runtime_tools=rig.tools.specs(["echo"]))

    assert codes(chunks) == ["TOOL_NOT_FOUND", "TOOL_NOT_FOUND"]
    assert "the tools there are: echo." in str(results(chunks)[0].error_details)
    assert hidden.ran == []


@requirement("R345")
async def test_the_gate_refuses_a_call_which_is_answered_and_stays_in_the_final_output() -> None:
    tool = Echo("delete_file")
    rig = Rig([[call("delete_file", id="c1"), call("echo", id="c2")], ["Done."]], tools=[tool, Echo()])

    chunks, output = await rig.run(options=TurnOptions(tool_gate={"deny": ["delete_*"]}))

    assert codes(chunks) == ["TOOL_CALL_REFUSED", None]
    assert tool.ran == []
    assert [made.id for made in output.tool_calls] == ["c1", "c2"]


async def test_the_gate_also_holds_back_what_would_go_to_the_host() -> None:
    rig = Rig([[call("get_weather", id="c1")], ["Done."]])

    chunks, output = await rig.run(host_tools=(HOST_TOOL,), options=TurnOptions(tool_gate={"allow": ["echo"]}))

    assert letters(chunks) == "S R T S M"
    assert codes(chunks) == ["TOOL_CALL_REFUSED"]
    assert (output.is_final, [made.id for made in output.tool_calls]) == (True, ["c1"])


async def test_the_very_same_call_a_third_time_is_not_run_and_the_model_is_told() -> None:
    tool = Echo()
    same = [[call("echo", {"a": 1, "b": 2}, id=f"c{n}")] for n in range(2)]
    rig = Rig(
        [*same, [call("echo", {"b": 2, "a": 1}, id="c2"), call("echo", {"a": 2}, id="c3")], ["Done."]], tools=[tool]
    )

    chunks, _ = await rig.run()

    assert codes(chunks) == [None, None, "TOOL_CALL_REPEATED", None]
    assert tool.ran == [{"a": 1, "b": 2}, {"a": 1, "b": 2}, {"a": 2}]
    assert "2 times in this turn" in str(rig.one.requests[-1].messages[-2].content)


async def test_repeats_within_one_step_count_too() -> None:
    tool = Echo()
    rig = Rig([[call("echo", id=f"c{n}") for n in range(4)], ["Done."]], tools=[tool])

    chunks, _ = await rig.run()

    assert codes(chunks) == [None, None, "TOOL_CALL_REPEATED", "TOOL_CALL_REPEATED"]
    assert len(tool.ran) == 2


async def test_arguments_that_do_not_fit_are_told_to_the_model_and_the_tool_is_not_run() -> None:
    tool = Echo()
    tool.spec = ToolSpec("echo", "", {"type": "object", "properties": {"a": {"type": "integer"}}})
    rig = Rig([[call("echo", {"a": "no"}, id="c1"), ToolCall("c2", "echo", invalid="{a:")], ["Done."]], tools=[tool])

    chunks, _ = await rig.run()

    assert codes(chunks) == ["TOOL_ARGUMENTS_INVALID", "TOOL_ARGUMENTS_INVALID"]
    assert tool.ran == []
    assert "is not of type" in str(rig.one.requests[-1].messages[-2].content)
