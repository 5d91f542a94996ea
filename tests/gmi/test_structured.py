"""Structured replies: what the model is told, what is taken out of its text, and how often it is asked."""

import json
from typing import Any

import pytest

from app.domain.chunks import StepFinished, TextDelta
from app.domain.errors import ValidationError
from app.domain.turn import TurnOptions
from app.domain.usage import Usage
from app.providers.scripted import call
from app.turn.gmi.structured import Judged, StructuredReply
from tests.gmi.rig import HOST_TOOL, Echo, Rig, letters
from tests.requirements import requirement
from tests.stage import WEATHER, Stage, one, result, types

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
}
GOOD = '{"city": "Berlin", "degrees": 21}'
VALUE = {"city": "Berlin", "degrees": 21}


def wanted(**more: Any) -> TurnOptions:
    return TurnOptions(structured_reply={"schema": SCHEMA, **more})


@pytest.mark.parametrize(
    "text",
    [GOOD, f"  {GOOD}\n", f"```json\n{GOOD}\n```", f"Here it is:\n```\n{GOOD}\n```\nDone.", f"Sure: {GOOD} Bye."],
)
def test_the_value_is_found_in_the_reply(text: str) -> None:
    judged = StructuredReply(SCHEMA).judge(text)

    assert (judged.value, judged.issues) == (VALUE, ())


@pytest.mark.parametrize("text", ["", "It is mild.", "{oops", "} {"])
def test_a_reply_without_a_value_is_told_as_such(text: str) -> None:
    assert StructuredReply(SCHEMA).judge(text).issues == ("The reply holds no JSON value.",)


def test_what_does_not_fit_is_told_by_place_and_at_most_five_times() -> None:
    many = StructuredReply({"type": "array", "items": {"type": "integer"}})

    assert StructuredReply(SCHEMA).judge('{"city": 1}').issues[0].startswith("At $: 'degrees' is a required")
    assert len(many.judge('["a", "b", "c", "d", "e", "f"]').issues) == 5


async def test_a_first_reply_that_is_bad_is_asked_again_and_nothing_of_it_is_told_or_kept() -> None:
    rig = Rig([['{"city": "Berlin"}', Usage(5, 1)], [GOOD, Usage(9, 2)]])

    chunks, output = await rig.run(options=wanted())

    assert letters(chunks) == "U S U S M"
    assert [chunk.structured_output for chunk in chunks if isinstance(chunk, StepFinished)] == [None, VALUE]
    assert output.structured == {
        "value": VALUE, "name": "reply", "valid": True, "attempts": 2, "enforcement": "provider_schema",
        "stage": "model",
    }  # fmt: skip
    assert (output.response_text, output.usage) == (GOOD, Usage(14, 3))
    assert [message.content for message in output.history if message.role == "assistant"] == [GOOD]
    bad, asked = rig.one.requests[1].messages[-2:]
    assert (bad.role, bad.content, asked.role) == ("assistant", '{"city": "Berlin"}', "user")
    assert "'degrees' is a required property" in str(asked.content)


async def test_the_model_is_told_the_schema_in_words_and_in_the_providers_form() -> None:
    rig = Rig([[GOOD]])

    await rig.run(options=wanted(name="weather", description="The weather."))

    request = rig.one.requests[0]
    system = str(request.messages[0].content)
    assert system.startswith("Be brief.\n\n")
    assert json.dumps(SCHEMA, separators=(",", ":")) in system
    assert request.response_format == {
        "type": "json_schema",
        "json_schema": {"name": "weather", "schema": SCHEMA, "description": "The weather."},
    }


async def test_replies_that_never_fit_fail_the_turn_after_as_many_as_were_allowed() -> None:
    rig = Rig([["no"], ["no"], ["no"]])

    chunks, output = await rig.run(options=wanted(max_retries=2))

    assert letters(chunks) == "S S S error M"
    assert output.error is not None
    assert (output.error.code, output.error.details["attempts"]) == ("GMI_STRUCTURED_OUTPUT_INVALID", 3)
    rig.one.assert_used_up()


async def test_the_last_reply_can_be_taken_as_it_is_with_what_is_wrong_with_it() -> None:
    rig = Rig([['{"city": 7, "degrees": 1}']])

    _, output = await rig.run(options=wanted(max_retries=0, on_exhausted="return_invalid"))

    assert output.error is None
    assert output.structured is not None
    assert (output.structured["valid"], output.structured["value"]) == (False, {"city": 7, "degrees": 1})
    assert output.structured["issues"] == ["At $.city: 7 is not of type 'string'"]


async def test_the_text_can_be_streamed_before_it_is_checked() -> None:
    chunks, _ = await Rig([[GOOD]]).run(options=wanted(stream_deltas=True))

    assert [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)] == [GOOD]


async def test_tools_run_before_the_reply_and_what_was_said_beside_them_is_no_part_of_it() -> None:
    rig = Rig([["Let me see.", call("echo", id="c1")], [GOOD]], tools=[Echo()])

    chunks, output = await rig.run(options=wanted())

    assert letters(chunks) == "C S R S M"
    assert (output.response_text, output.structured is not None) == (GOOD, True)


async def test_retries_end_with_the_turns_steps() -> None:
    rig = Rig([["no"], ["no"]])

    chunks, _ = await rig.run(options=wanted(max_retries=5), max_iterations=1)

    assert letters(chunks) == "S S error M"


async def test_a_pause_keeps_no_word_of_the_schema_and_goes_on_with_it() -> None:
    rig = Rig([[call("get_weather", id="c1")]])

    _, output = await rig.run(options=wanted(), host_tools=(HOST_TOOL,))

    assert output.history[0].content == "Be brief."


def test_a_schema_that_is_none_is_refused() -> None:
    for bad in ({"schema": {"type": "nonsense"}}, {"schema": 1}, {}):
        with pytest.raises(ValidationError) as caught:
            StructuredReply.from_json(bad)
        assert caught.value.details["reason"] == "STRUCTURED_REPLY_CONFIG"


@requirement("R50", "R51", "R52")
async def test_the_value_is_on_the_final_response_of_turns_and_of_continuations(stage: Stage) -> None:
    stage.provider.add([GOOD], [call("get_weather", {"city": "Berlin"}, id="c1")], ["no"], [GOOD], "Plain.")

    turn = one(await stage.play("Weather?", options=wanted()), "final_response")
    assert (turn["structured"]["value"], turn["structured"]["attempts"]) == (VALUE, 1)

    request = one(await stage.play("Weather?", tools=[WEATHER], options=wanted()), "tool_call_request")
    chunks = await stage.pass_results(request["stream_id"], result("c1"))
    plain = await stage.play("And now?")

    final = one(chunks, "final_response")
    assert (final["structured"]["value"], final["structured"]["attempts"]) == (VALUE, 2)
    assert final["final_response_text"] == GOOD
    assert "text_delta" not in types(chunks)
    assert "structured" not in one(plain, "final_response")
    assert [content for role, content in await stage.said() if role == "assistant"] == [GOOD, None, GOOD, "Plain."]


def test_an_object_or_a_list_in_quotes_is_taken_for_what_it_is() -> None:
    schema = {"type": "object", "properties": {"days": {"type": "array", "items": {"type": "integer"}}}}

    assert StructuredReply(schema).judge('{"days": "[1, 2]"}') == Judged({"days": [1, 2]}, ())
    assert StructuredReply(schema).judge('{"days": "[true]"}').value == {"days": "[true]"}
