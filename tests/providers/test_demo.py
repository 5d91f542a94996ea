"""The model that is a script: what it answers, asks for, and says of itself."""

import pytest

from app.domain.messages import Message, ToolCall
from app.domain.tools import ToolSpec
from app.domain.usage import Usage
from app.providers.base import CallsReady, Finish, ModelRequest, ProviderEvent, TextPiece, UsageReport
from app.providers.demo import DemoProvider
from tests.providers.reading import collect, failing, text_of

CLOCK = ToolSpec("current_time", "tells the time")
WEATHER = ToolSpec("get_weather", "tells the weather")


async def ask(*messages: Message, tools: tuple[ToolSpec, ...] = (CLOCK, WEATHER)) -> list[ProviderEvent]:
    return await collect(DemoProvider(piece_seconds=0).stream(ModelRequest("demo", messages, tools=tools)))


def calls_of(events: list[ProviderEvent]) -> list[ToolCall]:
    return [call for event in events if isinstance(event, CallsReady) for call in event.calls]


async def test_it_says_that_it_is_a_script_and_streams_in_pieces() -> None:
    events = await ask(Message("user", "Who are you?"))

    assert "I am a script, not a model" in text_of(events)
    assert "Who are you?" in text_of(events)
    assert sum(isinstance(event, TextPiece) for event in events) > 20
    assert isinstance(events[-2], UsageReport)
    assert events[-1] == Finish("stop", response_model="demo")


async def test_it_asks_the_clock_about_the_time() -> None:
    events = await ask(Message("user", "What time is it?"))

    assert [call.name for call in calls_of(events)] == ["current_time"]
    assert text_of(events) == ""
    assert events[-1] == Finish("tool_calls", response_model="demo")


@pytest.mark.parametrize(
    ("question", "city"),
    [
        ("What is the weather?", "Berlin"),
        ("What's the weather in Paris?", "Paris"),
        ("weather for New York today", "New York"),
        ("Is it raining in Århus", "Århus"),
        ("weather in the mountains", "Berlin"),
    ],
)
async def test_it_asks_the_host_about_the_weather_in_the_city_that_is_named(question: str, city: str) -> None:
    assert [(call.name, call.arguments) for call in calls_of(await ask(Message("user", question)))] == [
        ("get_weather", {"city": city})
    ]


async def test_it_asks_for_both_at_once_and_answers_with_both() -> None:
    question = Message("user", "What time is it, and how is the weather in Rome?")
    calls = calls_of(await ask(question))
    time, weather = calls

    events = await ask(
        question,
        Message("assistant", tool_calls=tuple(calls)),
        Message("tool", '{"time": "12:00"}', tool_call_id=time.id, name=time.name),
        Message("tool", '{"sky": "clear", "degrees": 21}', tool_call_id=weather.id, name=weather.name),
    )

    assert calls_of(events) == []
    assert "The time: time 12:00." in text_of(events)
    assert "The weather in Rome: sky clear, degrees 21." in text_of(events)
    assert "not a model" in text_of(events)


async def test_it_tells_a_result_that_is_an_error() -> None:
    question = Message("user", "weather in Rome")
    (weather,) = calls_of(await ask(question))

    events = await ask(
        question,
        Message("assistant", tool_calls=(weather,)),
        Message("tool", '{"code": "X", "message": "no thermometer"}', tool_call_id=weather.id, is_error=True),
    )

    assert "could not tell the weather in Rome: code X, message no thermometer." in text_of(events)


async def test_it_says_what_is_missing_when_a_tool_is_not_offered() -> None:
    events = await ask(Message("user", "time and weather?"), tools=())

    assert calls_of(events) == []
    assert "current_time" in text_of(events)
    assert "get_weather" in text_of(events)


async def test_a_new_question_after_an_old_round_is_answered_by_itself() -> None:
    old = ToolCall("call_1", "get_weather", {"city": "Rome"})
    history = (
        Message("user", "weather in Rome"),
        Message("assistant", tool_calls=(old,)),
        Message("tool", "not run", tool_call_id="call_1", is_error=True),
    )

    assert "weather in Rome" not in text_of(await ask(*history, Message("user", "hello")))
    (again,) = calls_of(await ask(*history, Message("user", "weather in Oslo")))
    assert (again.arguments, again.id == old.id) == ({"city": "Oslo"}, False)


async def test_the_same_request_gets_the_same_answer() -> None:
    assert await ask(Message("user", "weather and time")) == await ask(Message("user", "weather and time"))


async def test_words_are_counted_as_tokens() -> None:
    events = await ask(Message("user", "weather in Rome"))

    assert UsageReport(Usage(3, 5)) in events


async def test_there_is_no_other_model() -> None:
    _, error = await failing(DemoProvider().stream(ModelRequest("gpt", (Message("user", "hi"),))))

    assert error.reason == "invalid_request"
