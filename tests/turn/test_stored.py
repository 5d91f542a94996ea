"""What the conversation keeps of a turn, and what the next turn is therefore told."""

from app.providers.scripted import call
from tests.requirements import requirement
from tests.stage import WEATHER, Stage, one, result, wire

CLOCK = call("current_time", id="own-1")


def roles(stage: Stage) -> list[str]:
    """Give the roles of the last request's messages."""
    return [message["role"] for message in wire(stage.provider.requests[-1])]


@requirement("R53")
async def test_input_and_reply_are_stored_in_their_order(stage: Stage) -> None:
    stage.provider.add("Hello, Ada.")
    final = one(await stage.play("Hi."), "final_response")

    stored = await stage.messages()
    assert [(message.role, message.content) for message in stored] == [("user", "Hi."), ("assistant", "Hello, Ada.")]
    assert [message.position for message in stored] == [1, 2]
    assert {message.turn_id for message in stored} == {final["turn_id"]}
    assert stored[-1].message_id == final["message_id"]


@requirement("R54", "R57", "R58", "R59")
async def test_the_runtimes_own_tool_rounds_stay_out_of_the_conversation(stage: Stage) -> None:
    stage.provider.add(["Let me look. ", CLOCK], "It is noon.", "As I said.")
    final = one(await stage.play("What time is it?"), "final_response")

    assert [own["id"] for own in final["final_tool_calls"]] == ["own-1"]
    assert roles(stage) == ["system", "user", "assistant", "tool"]
    stored = await stage.messages()
    assert [(message.role, message.content, message.tool_calls) for message in stored] == [
        ("user", "What time is it?", ()),
        ("assistant", "Let me look. It is noon.", ()),
    ]

    await stage.play("Say it again.")
    assert roles(stage) == ["system", "user", "assistant", "user"]
    assert not any("tool_calls" in message for message in wire(stage.provider.requests[-1]))


@requirement("R55")
async def test_a_turn_that_ends_with_calls_and_without_text_stores_no_assistant_message(stage: Stage) -> None:
    stage.provider.add([CLOCK], [], "Hello.")
    final = one(await stage.play("What time is it?"), "final_response")

    assert (final["final_response_text"], final["message_id"]) == (None, None)
    assert [own["id"] for own in final["final_tool_calls"]] == ["own-1"]
    assert await stage.said() == [("user", "What time is it?")]
    await stage.play("Hello?")
    assert roles(stage) == ["system", "user", "user"]


@requirement("R56", "R57", "R59")
async def test_a_continuation_stores_its_reply_without_the_runtimes_own_calls(stage: Stage) -> None:
    stage.provider.add([call("get_weather", {"city": "Berlin"}, id="c1")], [CLOCK], "Noon, and 21 degrees.", "Yes.")
    request = (await stage.play("Time and weather?", tools=[WEATHER]))[-1]
    await stage.pass_results(request["stream_id"], result("c1"))

    stored = await stage.messages()
    assert [(message.role, len(message.tool_calls)) for message in stored] == [
        ("user", 0), ("assistant", 1), ("tool", 0), ("assistant", 0),
    ]  # fmt: skip
    assert stored[-1].content == "Noon, and 21 degrees."
    await stage.play("Sure?")
    assert roles(stage) == ["system", "user", "assistant", "tool", "assistant", "user"]


@requirement("R60", "R58")
async def test_a_hosts_tool_round_is_stored(stage: Stage) -> None:
    asked = [call("get_weather", {"city": "Berlin"}, id="c1"), call("get_weather", {"city": "Rome"}, id="c2")]
    stage.provider.add(["I will ask. ", *asked], "Warm.", "Bye.")
    request = (await stage.play("Weather?", tools=[WEATHER]))[-1]
    await stage.pass_results(request["stream_id"], result("c2", "25"), result("c1", {"degrees": 21}))

    stored = await stage.messages()
    assert [(message.role, message.content, message.tool_call_id) for message in stored] == [
        ("user", "Weather?", None),
        ("assistant", "I will ask. ", None),
        ("tool", "25", "c2"),
        ("tool", '{"degrees":21}', "c1"),
        ("assistant", "Warm.", None),
    ]
    assert stored[1].tool_calls == tuple(one_call.public() for one_call in asked)
    # Told to a model, the answers stand in the order of the calls.
    await stage.play("Thanks.")
    told = [message.get("tool_call_id") for message in wire(stage.provider.requests[-1])]
    assert told == [None, None, None, "c1", "c2", None, None]


@requirement("R54", "R57", "R60")
async def test_of_a_step_with_both_kinds_of_calls_the_conversation_stores_the_hosts_round_alone(stage: Stage) -> None:
    stage.provider.add([CLOCK, call("get_weather", {"city": "Berlin"}, id="c1")], "Noon, and 21 degrees.")
    request = (await stage.play("Time and weather?", tools=[WEATHER]))[-1]
    assert [asked["id"] for asked in request["tool_calls"]] == ["c1"]
    await stage.pass_results(request["stream_id"], result("c1"))

    # The model is told both answers, in the order in which it asked.
    told = wire(stage.provider.requests[-1])
    assert [message.get("tool_call_id") for message in told[-2:]] == ["own-1", "c1"]
    stored = await stage.messages()
    assert [(message.role, message.tool_call_id) for message in stored] == [
        ("user", None), ("assistant", None), ("tool", "c1"), ("assistant", None),
    ]  # fmt: skip
    assert [asked["id"] for asked in stored[1].tool_calls] == ["c1"]
