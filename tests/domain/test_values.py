"""Values of the domain: what is stored reads back the same, names are made of names, answers stand in their order."""

import json
import math
from datetime import UTC, datetime
from string import printable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.answers import in_call_order, missing_answers, not_run, result_message
from app.domain.errors import MalformedError
from app.domain.ids import conversation_of, fresh, gmi_instance_id, row_key, stream_id_for
from app.domain.jsontext import dumps, loads, stamp
from app.domain.messages import Message, ToolCall, dump, load, text_of
from app.domain.text import REPLACEMENT, Growing, clean
from app.domain.tools import ToolResult
from app.domain.turn import TurnOptions
from app.domain.usage import Usage
from app.domain.views import Cursor
from tests.requirements import requirement

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
calls = st.builds(
    ToolCall,
    id=texts,
    name=texts,
    arguments=st.dictionaries(texts, plain, max_size=3),
    invalid=st.none() | texts,
    extra=st.none() | st.dictionaries(texts, plain, min_size=1, max_size=2),
)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool", "summary", "error", "thought"]),
    content=st.none() | texts | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": texts}), max_size=2),
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    tool_call_id=st.none() | texts,
    name=st.none() | texts,
    is_error=st.booleans(),
    metadata=st.none() | st.dictionaries(texts, plain, min_size=1, max_size=2),
)


@given(st.lists(messages, max_size=4))
def test_messages_read_back_as_they_were_stored(given_messages: list[Message]) -> None:
    stored = loads(dumps(dump(given_messages)))
    assert load(stored) == tuple(given_messages)


@given(plain)
def test_json_reads_back_as_it_was_written_and_is_strict_json(value: Any) -> None:
    assert loads(dumps(value)) == value
    assert json.loads(dumps(value)) == value


@given(st.integers(min_value=-(10**40), max_value=10**40))
def test_integers_of_any_size_stay_exact(number: int) -> None:
    assert loads(dumps({"n": number})) == {"n": number}


@pytest.mark.parametrize("text", ["", "{", "nonsense", "NaN", "[-Infinity]", "[1,]", "{'a': 1}", "\x00"])
def test_what_is_no_json_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        loads(text)


@given(st.text(max_size=20))
def test_cleaned_text_can_be_stored_and_nothing_else_is_touched(text: str) -> None:
    cleaned, changed = clean({text: [text, 1, None]})
    ((key, (value, *_)),) = cleaned.items()
    assert key == value
    assert changed == (value != text)
    value.encode()
    assert "\x00" not in value
    assert all(after in {before, REPLACEMENT} for before, after in zip(text, value, strict=True))


@requirement("R93", "R94")
@given(st.lists(calls, max_size=5, unique_by=lambda call: call.id), st.data())
def test_with_the_stand_ins_every_call_is_answered_once_and_in_its_order(made: list[ToolCall], data: Any) -> None:
    answered = data.draw(st.lists(st.sampled_from(made), unique_by=lambda call: call.id) if made else st.just([]))
    results = [ToolResult(call.id, call.name, "x") for call in answered]
    missing = missing_answers(made, results)

    assert [result.tool_call_id for result in missing] == [call.id for call in made if call not in answered]
    assert {result.output["code"] for result in missing} <= {"EXTERNAL_TOOL_NOT_RUN"}
    whole = in_call_order(made, [*results, *missing])
    assert [result.tool_call_id for result in whole] == [call.id for call in made]


@pytest.mark.parametrize(
    ("output", "content"),
    [("as it is", "as it is"), ("", ""), (None, "null"), (0, "0"), ({"a": [1]}, '{"a":[1]}'), ([], "[]")],
)
def test_a_result_is_told_as_text_or_as_json(output: Any, content: str) -> None:
    told = result_message(ToolResult("c1", "tool", output))
    assert (told.role, told.content, told.tool_call_id, told.is_error) == ("tool", content, "c1", False)


def test_a_stand_in_is_an_error_that_the_model_can_read() -> None:
    told = result_message(not_run(ToolCall("c1", "get_weather")))
    assert told.is_error
    assert "EXTERNAL_TOOL_NOT_RUN" in text_of(told.content)


def test_a_stream_id_tells_its_conversation_and_no_other_text_does() -> None:
    key = row_key("acme", "chat-1")
    assert conversation_of(stream_id_for(key)) == key
    assert stream_id_for(key) != stream_id_for(key)
    for text in ("", "st_", "st_" + "z" * 44, "st_" + "0" * 43, "x" + stream_id_for(key), stream_id_for(key) + "0"):
        assert conversation_of(text) is None, text


@given(st.text(printable, max_size=20), st.text(printable, max_size=20))
def test_a_row_key_depends_on_organization_and_name_and_on_where_one_ends(organization: str, name: str) -> None:
    key = row_key(organization, name)
    assert key == row_key(organization, name)
    assert key != row_key(organization + "x", name)
    assert key != row_key(organization, name + "x")
    if organization:
        assert key != row_key(organization[:-1], organization[-1] + name)


@given(st.datetimes(timezones=st.just(UTC)) | st.just(datetime(2026, 11, 30, tzinfo=UTC)))
def test_a_time_is_told_to_the_millisecond(time: datetime) -> None:
    assert stamp(time).decode() == time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_a_gmi_has_one_id_on_every_process() -> None:
    assert gmi_instance_id("", "ada", "s", "demo") == gmi_instance_id("", "ada", "s", "demo")
    assert gmi_instance_id("", "ada", "s", "demo") != gmi_instance_id("", "ada", "s", "poet")


def test_fresh_names_differ() -> None:
    names = {fresh("turn") for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith("turn_") for name in names)


@given(st.integers(0, 10**17), st.integers(0, 10**9))
def test_an_event_id_reads_back(fence: int, n: int) -> None:
    assert Cursor.parse(str(Cursor(fence, n))) == Cursor(fence, n)


@pytest.mark.parametrize("text", ["", "1", "1-", "-1", "a-b", "1-2-3", "1-²", "١-١", " 1-1", "1" * 19 + "-1"])
def test_a_text_that_is_no_event_id_is_refused(text: str) -> None:
    with pytest.raises(MalformedError):
        Cursor.parse(text)


def test_options_store_what_is_set_and_read_what_they_know() -> None:
    options = TurnOptions(model="openai:m", temperature=0.0, custom_flags={"mode": "deep"})
    assert TurnOptions.from_json({**options.to_json(), "of_a_newer_release": 1}) == options
    assert "top_p" not in options.to_json()


counts = st.integers(0, 10**6)
usages = st.builds(Usage, counts, counts, counts, counts)


@given(usages, usages)
def test_usage_adds_up(one: Usage, other: Usage) -> None:
    both = one + other
    assert both.total_tokens == one.total_tokens + other.total_tokens
    assert Usage.from_json(both.to_json()) == both
    assert math.isfinite(both.total_tokens)


@given(st.lists(st.text(max_size=4), max_size=8), st.text(max_size=4))
def test_a_growing_text_is_its_pieces_also_where_they_are_half_a_character(pieces: list[str], first: str) -> None:
    text = Growing(first)
    for piece in pieces:
        text.add(piece)
    assert str(text) == "".join([first, *pieces])
    assert bool(text) is bool(str(text))
