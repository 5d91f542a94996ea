"""The order of a GMI's chunks: the worked sequences, and each rule of order by itself."""

import asyncio

import pytest

from app.domain.chunks import (
    GmiChunk,
    GmiError,
    LatencyReport,
    ReasoningStateUpdate,
    SourcesAvailable,
    StepFinished,
    SystemNotice,
    ToolResultRecorded,
    UiCommands,
    UsageUpdate,
)
from app.domain.turn import TurnOptions
from app.domain.usage import Hop, Usage
from app.providers.base import CallsReady, Finish, ReasoningPiece, TextPiece, UsageReport
from app.providers.scripted import Step, call
from app.turn.delivery.requests import HeldRequests
from app.turn.delivery.transform import to_stream
from tests.gmi.rig import HOST_TOOL, Echo, Rig, broken, letters
from tests.requirements import requirement

BILL = Usage(7, 2)


@requirement("R259", "R265", "R267", "R268", "R271", "R274", "R275", "R281", "R282")
async def test_a_plain_answer() -> None:
    rig = Rig([["Hel", Usage(5, 1), "lo", Usage(5, 2)]])

    chunks, output = await rig.run()

    assert letters(chunks) == "T U T U S M"
    updates = [chunk.usage for chunk in chunks if isinstance(chunk, UsageUpdate)]
    (finished,) = [chunk for chunk in chunks if isinstance(chunk, StepFinished)]
    assert updates == [Usage(5, 1), Usage(5, 2)]
    assert (finished.step_index, finished.text, finished.finish_reason) == (0, "Hello", "stop")
    assert (finished.provider, finished.model, finished.hop, finished.usage) == ("one", "m1", 0, Usage(5, 2))
    assert (output.response_text, output.usage, output.tool_calls) == ("Hello", Usage(5, 2), ())


@requirement("R264")
@pytest.mark.parametrize(("sources", "told"), [(({"id": "s1"},), "sources T T U S M"), ((), "T T U S M")])
async def test_sources_come_first_and_only_when_there_are_some(sources: tuple[dict[str, str], ...], told: str) -> None:
    rig = Rig([["a", "b", Usage(1, 2)]])

    chunks, output = await rig.run(sources=sources)

    assert letters(chunks) == told
    assert [chunk.sources for chunk in chunks if isinstance(chunk, SourcesAvailable)] == [sources] * bool(sources)
    assert output.rag_sources == sources


@requirement("R260", "R266", "R269", "R276", "R277")
async def test_one_tool_of_its_own_and_then_the_answer() -> None:
    rig = Rig([["Let me see.", call("echo", {"a": 1}, id="c1"), Usage(5, 3)], ["Done.", Usage(9, 1)]], tools=[Echo()])

    chunks, output = await rig.run()

    assert letters(chunks) == "T C U S R T U S M"
    assert [chunk.result.output for chunk in chunks if isinstance(chunk, ToolResultRecorded)] == [{"a": 1}]
    assert output.usage == Usage(14, 4)
    assert output.response_text == "Let me see.Done."
    assert [made.id for made in output.tool_calls] == ["c1"]


async def test_two_tools_of_which_the_second_fails_in_a_turn_that_goes_on() -> None:
    tools = [Echo(), Echo("bad", fails="no luck")]
    rig = Rig([[call("echo", id="c1"), call("bad", id="c2"), Usage(5, 3)], ["Sorry.", Usage(9, 1)]], tools=tools)

    chunks, output = await rig.run()

    assert letters(chunks) == "C U S R R T U S M"
    assert [chunk.result.is_error for chunk in chunks if isinstance(chunk, ToolResultRecorded)] == [False, True]
    assert (output.error, output.response_text) == (None, "Sorry.")


async def test_two_tools_of_which_the_second_fails_in_a_turn_that_must_not_go_on() -> None:
    tools = [Echo(), Echo("bad", fails="no luck")]
    rig = Rig([[call("echo", id="c1"), call("bad", id="c2"), Usage(5, 3)]], tools=tools)

    chunks, output = await rig.run(options=TurnOptions(tool_failure_mode="fail_closed"))

    assert letters(chunks) == "C U S R R error M"
    assert output.error is not None
    assert (output.error.code, output.usage) == ("TOOL_ERROR", Usage(5, 3))
    assert output.error.details == {"tool_call_id": "c2", "tool": "bad"}


async def test_behind_a_tool_that_fails_none_is_run_in_a_turn_that_must_not_go_on() -> None:
    second = Echo()
    rig = Rig([[call("bad", id="c1"), call("echo", id="c2"), Usage(5, 3)]], tools=[Echo("bad", fails="no"), second])

    chunks, _ = await rig.run(options=TurnOptions(tool_failure_mode="fail_closed"))

    assert letters(chunks) == "C U S R R error M"
    results = [chunk.result for chunk in chunks if isinstance(chunk, ToolResultRecorded)]
    assert [(result.error_details or {})["code"] for result in results] == ["TOOL_EXECUTION_FAILED", "TOOL_NOT_RUN"]
    assert second.ran == []


@requirement("R270", "R278", "R279", "R288", "R289", "R290")
@pytest.mark.parametrize("fallbacks", [("two:m2",), ()], ids=["with another model", "without"])
async def test_a_failure_after_text_that_was_billed(fallbacks: tuple[str, ...]) -> None:
    rig = Rig([["Hel", Usage(5, 1), broken("server", BILL)]], [["Hello"]], fallbacks=fallbacks)

    chunks, output = await rig.run()

    assert letters(chunks) == "T U U! error M"
    failed = chunks[2]
    assert isinstance(failed, UsageUpdate)
    assert (failed.usage, failed.hop, failed.provider, failed.model) == (BILL, 0, "one", "m1")
    assert output.usage == BILL
    assert output.error is not None
    assert (output.error.code, output.response_text) == ("LLM_PROVIDER_ERROR", None)
    assert rig.two.requests == []


@requirement("R283", "R284", "R285")
async def test_the_first_model_refuses_and_bills_and_another_one_answers() -> None:
    rig = Rig([[Usage(3, 0), broken("server", BILL)]], [["Hi", Usage(4, 1)]], fallbacks=("two:m2",))

    chunks, output = await rig.run()

    assert letters(chunks) == "U! T U S M"
    (failed, _, told, finished, _) = chunks
    assert isinstance(failed, UsageUpdate)
    assert isinstance(told, UsageUpdate)
    assert isinstance(finished, StepFinished)
    assert (failed.hop, failed.provider, told.hop, told.provider) == (0, "one", 1, "two")
    assert (finished.hop, finished.provider, finished.model) == (1, "two", "m2")
    assert (output.usage, output.hop) == (Usage(11, 3), Hop(1, "two", "m2"))


@requirement("R268")
async def test_the_end_of_a_step_tells_its_own_text_who_served_it_and_what_the_provider_said() -> None:
    said = Finish("tool_calls", "tool_use", "m1-0312", "msg_1", "priority", {"cache_miss_reason": None})
    rig = Rig(
        [[ReasoningPiece("hm", "sig"), "Look.", call("echo", id="c1"), said], ["Done.", Usage(9, 1)]], tools=[Echo()]
    )

    chunks, _ = await rig.run()

    first, last = (chunk for chunk in chunks if isinstance(chunk, StepFinished))
    assert first == StepFinished(
        step_index=0,
        text="Look.",
        finish_reason="tool_calls",
        provider="one",
        model="m1",
        hop=0,
        usage=None,
        response_model="m1-0312",
        service_tier="priority",
        provider_message_id="msg_1",
        cache_diagnostics={"cache_miss_reason": None},
        thinking_blocks=({"text": "hm", "after": 0, "provider": "one", "model": "m1", "signature": "sig"},),
    )
    assert last == StepFinished(1, "Done.", "stop", "one", "m1", usage=Usage(9, 1))


@requirement("R286", "R287")
@pytest.mark.parametrize(("bill", "told"), [(BILL, "U! error M"), (None, "error M"), (Usage(), "error M")])
async def test_no_model_is_left(bill: Usage | None, told: str) -> None:
    rig = Rig([[broken("server", bill)]])

    chunks, output = await rig.run()

    assert letters(chunks) == told
    assert output.usage == (bill or Usage())


@requirement("R261")
async def test_at_the_limit_one_more_step_without_tools_writes_the_answer() -> None:
    steps: list[Step] = [[call("echo", {"n": n}, id=f"c{n}"), Usage(1, 1)] for n in range(5)]
    rig = Rig([*steps, ["At last.", Usage(1, 1)]], tools=[Echo()])

    chunks, output = await rig.run()

    assert letters(chunks) == "C U S R " * 5 + "T U S M"
    assert [bool(request.tools) for request in rig.one.requests] == [True] * 5 + [False]
    assert (output.is_final, output.response_text, output.error) == (True, "At last.", None)


@requirement("R280")
async def test_there_is_a_usage_update_for_each_report_and_for_nothing_else() -> None:
    rig = Rig([[UsageReport(Usage(4, 0)), "a", UsageReport(Usage(4, 1)), UsageReport(Usage(4, 1)), "b"]])

    chunks, _ = await rig.run()

    assert letters(chunks) == "U T U U T S M"


@requirement("R273")
async def test_reasoning_is_not_told_and_no_other_kind_of_chunk_is_emitted() -> None:
    rig = Rig([[ReasoningPiece("hm"), TextPiece("a"), CallsReady((call("echo", id="c1"),)), Finish("stop")], ["b"]])

    chunks, _ = await rig.run()

    assert letters(chunks) == "T C S R T S M"


async def test_a_step_that_stops_for_the_host_ends_with_its_request() -> None:
    rig = Rig([["Look.", call("get_weather", id="c1"), call("echo", id="c2"), Usage(5, 1)]], tools=[Echo()])

    chunks, output = await rig.run(host_tools=(HOST_TOOL,))

    assert letters(chunks) == "T C U S R C M"
    assert (output.is_final, [made.id for made in output.tool_calls]) == (False, ["c1"])
    assert [message.role for message in output.history[-2:]] == ["assistant", "tool"]


@requirement("R295", "R296", "R297", "R298")
async def test_a_failure_without_a_code_gets_the_gmis_and_one_with_a_code_keeps_it() -> None:
    def burst(_: object) -> str:
        message = "the script burst"
        raise ZeroDivisionError(message)

    for step, code, said in (
        (burst, "GMI_PROCESSING_ERROR", "the script burst"),
        ([broken(message="No such model.")], "LLM_PROVIDER_ERROR", "No such model."),
    ):
        chunks, output = await Rig([step]).run()
        (error,) = [chunk for chunk in chunks if isinstance(chunk, GmiError)]
        assert error.code == code
        assert said in error.message
        assert output.error == error


async def test_closing_a_turn_in_mid_text_closes_the_models_answer_at_once() -> None:
    before = asyncio.all_tasks()
    rig = Rig([["a", "b", "c"]])
    items = rig.gmi.process_turn_stream(rig.turn())

    await anext(items)
    await items.aclose()  # type: ignore[attr-defined]

    assert [made.outcome for made in rig.calls] == ["abandoned"]
    assert asyncio.all_tasks() <= before


@requirement("R272", "R273")
def test_a_gmi_of_a_host_may_emit_four_more_kinds_of_which_streams_carry_two() -> None:
    held = HeldRequests()
    given: tuple[GmiChunk, ...] = (
        SystemNotice("Looking it up", 50, "LOOKING"),
        UiCommands(({"show": "map"},)),
        ReasoningStateUpdate({"plan": "look first"}),
        LatencyReport({"first_token": 12.5}),
    )

    shown = [to_stream(chunk, held) for chunk in given]

    assert [chunk.type if chunk is not None else None for chunk in shown] == [
        "system_progress", "ui_command", None, None,
    ]  # fmt: skip
