"""The provider that follows a script."""

import asyncio

import pytest

from app.domain.messages import Message, ToolCall
from app.domain.usage import Usage
from app.providers.base import (
    CallPiece,
    CallsReady,
    CallStarted,
    Finish,
    ModelRequest,
    ProviderEvent,
    ReasoningPiece,
    TextPiece,
    UsageReport,
)
from app.providers.errors import failure
from app.providers.scripted import Hold, Pause, ScriptedProvider, ScriptError, Split, call
from tests.providers.reading import collect, failing, text_of

REQUEST = ModelRequest("m", (Message("user", "hi"),))


async def test_steps_are_answered_in_turn_and_end_with_the_finish_that_fits() -> None:
    provider = ScriptedProvider(["hello", ["a", call("f", {"x": 1}, id="c1"), call("g", id="c2"), Usage(3, 2)]])

    assert await collect(provider.stream(REQUEST)) == [TextPiece("hello"), Finish("stop")]
    assert await collect(provider.stream(REQUEST)) == [
        TextPiece("a"),
        CallsReady((ToolCall("c1", "f", {"x": 1}), ToolCall("c2", "g"))),
        UsageReport(Usage(3, 2)),
        Finish("tool_calls"),
    ]
    provider.assert_used_up()


async def test_events_of_a_step_are_given_as_they_are() -> None:
    step: list[ProviderEvent] = [ReasoningPiece("hm", "sig"), TextPiece("a"), Finish("length", "max_tokens")]

    assert await collect(ScriptedProvider([step]).stream(REQUEST)) == step


async def test_a_step_may_be_made_of_the_request() -> None:
    provider = ScriptedProvider([lambda request: f"{len(request.messages)} messages"])

    assert text_of(await collect(provider.stream(REQUEST))) == "1 messages"


async def test_requests_are_kept_as_they_were_when_they_were_made() -> None:
    parts = [{"type": "text", "text": "before"}]
    provider = ScriptedProvider(["a"])
    await collect(provider.stream(ModelRequest("m", (Message("user", parts),))))

    parts[0]["text"] = "after"

    assert provider.requests[0].messages[0].content == [{"type": "text", "text": "before"}]


async def test_an_error_before_and_after_output_says_which() -> None:
    provider = ScriptedProvider(
        [
            [failure("overloaded", "scripted", "busy")],
            ["a", Usage(3, 1), failure("transport", "scripted", "gone")],
        ]
    )

    _, before = await failing(provider.stream(REQUEST))
    events, after = await failing(provider.stream(REQUEST))

    assert (before.after_output, before.usage) == (False, None)
    assert (text_of(events), after.after_output, after.usage) == ("a", True, Usage(3, 1))


async def test_asking_too_often_fails_at_once_and_at_the_end() -> None:
    provider = ScriptedProvider(["a"])
    await collect(provider.stream(REQUEST))

    with pytest.raises(ScriptError, match="asked for one more"):
        await collect(provider.stream(REQUEST))
    with pytest.raises(ScriptError, match="asked 1 times more"):
        provider.assert_used_up()


async def test_as_a_context_it_fails_the_test_whose_script_was_not_followed() -> None:
    with ScriptedProvider(["a"]) as followed:
        await collect(followed.stream(REQUEST))
    with pytest.raises(ScriptError, match="1 of 2 steps"), ScriptedProvider(["a", "b"]) as left:
        await collect(left.stream(REQUEST))
    with pytest.raises(ScriptError, match="asked 1 times more"), ScriptedProvider(["a"]) as overdrawn:
        await collect(overdrawn.stream(REQUEST))
        with pytest.raises(ScriptError, match="asked for one more"):
            await collect(overdrawn.stream(REQUEST))


def test_as_a_context_it_leaves_the_error_that_the_test_had() -> None:
    with pytest.raises(ZeroDivisionError), ScriptedProvider(["a"]):
        raise ZeroDivisionError


async def test_split_calls_come_in_pieces_and_are_ready_together_with_whole_ones() -> None:
    weather, time = call("get_weather", {"city": "Berlin"}, id="a"), call("get_time", id="b")
    provider = ScriptedProvider([["Let me see. ", Split(weather, pieces=3), time, Usage(5, 4)]])

    assert await collect(provider.stream(REQUEST)) == [
        TextPiece("Let me see. "),
        CallStarted(0, "get_weather", "a"),
        CallPiece(0, '{"city'),
        CallPiece(0, '":"Ber'),
        CallPiece(0, 'lin"}'),
        CallsReady((weather, time)),
        UsageReport(Usage(5, 4)),
        Finish("tool_calls"),
    ]


async def test_a_call_that_breaks_off_is_begun_and_never_ready() -> None:
    broken = Split(call("get_weather", {"city": "Berlin"}, id="a"), broken=True)
    provider = ScriptedProvider([[broken, failure("transport", "scripted", "gone")]])

    events, error = await failing(provider.stream(REQUEST))

    assert events[0] == CallStarted(0, "get_weather", "a")
    assert not [event for event in events if isinstance(event, CallsReady)]
    assert error.after_output


async def test_silence_takes_its_time_and_the_usage_at_the_end_is_the_tail() -> None:
    provider = ScriptedProvider([["a", Usage(3, 1), Pause(0), "b", Usage(3, 2)]])

    assert await collect(provider.stream(REQUEST)) == [
        TextPiece("a"),
        UsageReport(Usage(3, 1)),
        TextPiece("b"),
        UsageReport(Usage(3, 2)),
        Finish("stop"),
    ]


def test_steps_that_are_left_fail_the_test() -> None:
    with pytest.raises(ScriptError, match="1 of 1 steps"):
        ScriptedProvider(["a"]).assert_used_up()


async def test_a_step_waits_until_it_is_released() -> None:
    hold = Hold()
    provider = ScriptedProvider()
    provider.add(["a", hold, "b"])

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        reading = group.create_task(collect(provider.stream(REQUEST)))
        await hold.reached.wait()
        assert not reading.done()
        hold.release()

    assert text_of(reading.result()) == "ab"
    assert not hold.closed


async def test_a_reader_that_leaves_while_a_step_waits_is_noticed() -> None:
    hold = Hold()
    provider = ScriptedProvider([["a", hold]])

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        reading = group.create_task(collect(provider.stream(REQUEST)))
        await hold.reached.wait()
        reading.cancel()

    assert hold.closed
