"""Anthropic Messages from bytes, and the body that is sent."""

import itertools
import json
from typing import Any

import pytest

from app.domain.messages import Message, ToolCall
from app.domain.tools import ToolSpec
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
from app.providers.dialects.anthropic import AnthropicDialect
from app.providers.dialects.anthropic.body import AnthropicOptions, anthropic_body, call_id
from app.providers.dialects.anthropic.decoder import AnthropicDecoder
from app.providers.reasoning import ReasoningKeeper
from tests.providers.anthropic_wire import block, delta, ending, start, stopped, wire
from tests.providers.reading import Outcome, read, text_of

PLAIN = AnthropicOptions(cache=False)


def decode(*pieces: bytes) -> Outcome:
    numbers = itertools.count(1)
    return read(AnthropicDecoder("anthropic", new_id=lambda: f"made_{next(numbers)}"), *pieces)


STOP = {"type": "message_stop"}
TOOLS = wire(
    start(input_tokens=9, output_tokens=1),
    {"type": "ping"},
    block(0, type="text", text=""),
    delta(0, "text_delta", text="Let me loo"),
    delta(0, "text_delta", text="k \u2028🌍"),
    stopped(0),
    block(1, type="tool_use", id="toolu_1", name="get_weather", input={}),
    delta(1, "input_json_delta", partial_json=""),
    delta(1, "input_json_delta", partial_json='{"city": "Kö'),
    delta(1, "input_json_delta", partial_json='ln"}'),
    stopped(1),
    block(2, type="tool_use", id="toolu_2", name="get_time", input={}),
    stopped(2),
    ending("tool_use", output_tokens=30),
    STOP,
)
EXPECTED: list[ProviderEvent] = [
    UsageReport(Usage(9, 1)),
    TextPiece("Let me loo"),
    TextPiece("k \u2028🌍"),
    CallStarted(0, "get_weather", "toolu_1"),
    CallPiece(0, '{"city": "Kö'),
    CallPiece(0, 'ln"}'),
    CallStarted(1, "get_time", "toolu_2"),
    CallsReady((ToolCall("toolu_1", "get_weather", {"city": "Köln"}), ToolCall("toolu_2", "get_time"))),
    UsageReport(Usage(9, 30)),
    Finish("tool_calls", "tool_use", "claude-x"),
]


def test_text_calls_usage_and_finish_come_in_order() -> None:
    assert decode(TOOLS) == (EXPECTED, None)


@pytest.mark.parametrize("data", [TOOLS, TOOLS.replace(b"\n", b"\r\n")])
def test_the_events_are_the_same_wherever_the_bytes_are_cut(data: bytes) -> None:
    for cut in range(len(data)):
        assert decode(data[:cut], data[cut:]) == (EXPECTED, None)


def test_a_proxy_that_leaves_out_the_event_names_is_read() -> None:
    assert decode(wire(start(), delta(0, "text_delta", text="a"), ending("end_turn"), STOP, names=False))[1] is None


def test_counts_are_merged_field_by_field_and_cached_ones_are_part_of_the_prompt() -> None:
    events, _ = decode(
        wire(
            start(input_tokens=5, cache_creation_input_tokens=20, cache_read_input_tokens=100, output_tokens=1),
            delta(0, "text_delta", text="a"),
            ending(None, output_tokens=4),
            ending("end_turn", input_tokens=0, output_tokens=7),
            STOP,
        )
    )

    assert [event.usage for event in events if isinstance(event, UsageReport)] == [
        Usage(125, 1, 100),
        Usage(125, 4, 100),
        Usage(125, 7, 100),
    ]


def test_thinking_comes_with_its_signature_and_hidden_thinking_as_it_is() -> None:
    events, _ = decode(
        wire(
            start(),
            block(0, type="thinking", thinking="", signature=""),
            delta(0, "thinking_delta", thinking="hm"),
            delta(0, "signature_delta", signature="c2ln"),
            stopped(0),
            block(1, type="redacted_thinking", data="aGlk"),
            stopped(1),
            delta(2, "text_delta", text="a"),
            ending("end_turn"),
            STOP,
        )
    )

    assert events[1:5] == [
        ReasoningPiece("hm"),
        ReasoningPiece("", "c2ln"),
        ReasoningPiece("", "redacted:aGlk"),
        TextPiece("a"),
    ]


def test_blocks_and_deltas_that_are_not_known_are_left_out() -> None:
    events, error = decode(
        wire(
            start(),
            block(0, type="server_tool_use", id="x", name="web_search", input={}),
            delta(0, "input_json_delta", partial_json='{"q": 1}'),
            stopped(0),
            {"type": "something_new", "x": 1},
            delta(1, "citations_delta", citation={}),
            delta(1, "text_delta", text="a"),
            ending("end_turn"),
            STOP,
        )
    )

    assert (text_of(events), error, [event for event in events if isinstance(event, CallsReady)]) == ("a", None, [])


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "other"),
        ("unheard_of", "other"),
    ],
)
def test_stop_reasons_are_mapped(raw: str, reason: Any) -> None:
    assert decode(wire(start(), delta(0, "text_delta", text="a"), ending(raw), STOP))[0][-1] == Finish(
        reason, raw, "claude-x"
    )


def test_a_message_stop_alone_ends_the_answer_and_a_stop_reason_alone_does() -> None:
    assert decode(wire(start(), delta(0, "text_delta", text="a"), STOP))[0][-1] == Finish("stop", None, "claude-x")
    assert decode(wire(start(), delta(0, "text_delta", text="a"), ending("end_turn")))[1] is None


def test_an_end_in_the_middle_is_an_error() -> None:
    events, error = decode(wire(start(), delta(0, "text_delta", text="a")))

    assert text_of(events) == "a"
    assert error is not None
    assert error.reason == "truncated"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (wire({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}), "overloaded"),
        (wire({"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}), "rate_limited"),
        (wire({"type": "error", "error": {"type": "api_error", "message": "oops"}}), "server"),
        (wire({"type": "error", "error": {"type": "authentication_error", "message": "key"}}), "auth"),
        (b"event: error\ndata: text\n\n", "server"),
        (wire({"error": {"message": "x"}}, names=False), "server"),
        (wire("{bad"), "protocol"),
    ],
)
def test_an_error_inside_the_stream_is_raised(data: bytes, reason: str) -> None:
    _, error = decode(wire(start()), data)

    assert error is not None
    assert error.reason == reason


@pytest.mark.parametrize(
    ("pieces", "ends", "call"),
    [
        (['{"a": 1}'], True, ToolCall("t", "f", {"a": 1})),
        (['{"a": '], False, ToolCall("t", "f", {}, invalid='{"a": ')),
        ([], False, ToolCall("t", "f", {}, invalid="")),
        ([], True, ToolCall("t", "f", {})),
    ],
)
def test_a_call_that_the_length_limit_cut_is_invalid(pieces: list[str], call: ToolCall, *, ends: bool) -> None:
    documents = [delta(0, "input_json_delta", partial_json=piece) for piece in pieces]
    tail = [stopped(0)] if ends else []
    events, _ = decode(
        wire(
            start(),
            block(0, type="tool_use", id="t", name="f", input={}),
            *documents,
            *tail,
            ending("max_tokens"),
            STOP,
        )
    )

    assert [event for event in events if isinstance(event, CallsReady)] == [CallsReady((call,))]


def test_a_call_whose_input_comes_whole_or_whose_id_is_missing_is_read() -> None:
    events, _ = decode(
        wire(start(), block(0, type="tool_use", name="f", input={"a": 1}), stopped(0), ending("tool_use"), STOP)
    )

    assert CallsReady((ToolCall("made_1", "f", {"a": 1}),)) in events


# The body -------------------------------------------------------------------------------------------------------------


def body_of(*messages: Message, options: AnthropicOptions = PLAIN, **more: Any) -> dict[str, Any]:
    return anthropic_body(ModelRequest("claude-x", messages, **more), options)


def test_results_and_the_next_words_of_the_user_are_one_turn_with_the_results_first() -> None:
    body = body_of(
        Message("system", "be kind"),
        Message("summary", "before"),
        Message("user", "weather?"),
        Message("assistant", "Wait.", tool_calls=(ToolCall("a", "f", {"x": 1}), ToolCall("b!", "g"))),
        Message("tool", "mild", tool_call_id="a"),
        Message("tool", "no", tool_call_id="b!", is_error=True),
        Message("user", "go on"),
        Message("error", "never sent"),
    )

    assert body["system"] == [{"type": "text", "text": "be kind"}, {"type": "text", "text": "before"}]
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "weather?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Wait."},
                {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
                {"type": "tool_use", "id": call_id("b!"), "name": "g", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "mild"},
                {"type": "tool_result", "tool_use_id": call_id("b!"), "content": "no", "is_error": True},
                {"type": "text", "text": "go on"},
            ],
        },
    ]
    assert (body["max_tokens"], body["stream"]) == (8192, True)


def test_parts_become_blocks() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "url": "https://example.org/a.png"},
        {"type": "image_url", "url": "data:image/gif;base64,AAAA"},
        {"type": "image", "data": "BBBB", "mime_type": "image/jpeg"},
        {"type": "audio", "data": "CCCC"},
    ]

    blocks = body_of(Message("user", parts))["messages"][0]["content"]

    assert blocks[:4] == [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "AAAA"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "BBBB"}},
    ]
    assert "can't hear" in blocks[4]["text"]


def test_thinking_goes_back_byte_for_byte_where_it_stood() -> None:
    keeper = ReasoningKeeper("anthropic", "claude-x")
    for event in (
        ReasoningPiece("h"),
        ReasoningPiece("m"),
        ReasoningPiece("", "sig1"),
        TextPiece("One. "),
        ReasoningPiece("", "redacted:ZZ"),
        ReasoningPiece("unsigned"),
        TextPiece("Two."),
    ):
        keeper.push(event)
    answer = Message("assistant", "One. Two.", tool_calls=(ToolCall("a", "f"),), metadata=keeper.metadata())

    assert body_of(Message("user", "x"), answer)["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig1"},
        {"type": "text", "text": "One. "},
        {"type": "redacted_thinking", "data": "ZZ"},
        {"type": "text", "text": "Two."},
        {"type": "tool_use", "id": "a", "name": "f", "input": {}},
    ]


def test_options_and_tools_are_sent_in_the_dialects_words() -> None:
    schema = {"type": "object"}
    body = body_of(
        Message("user", "x"),
        tools=(ToolSpec("f", "does f", schema),),
        tool_choice="required",
        temperature=0.5,
        top_p=0.9,
        max_tokens=7,
        user="u",
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
        extra_body={"top_k": 3, "stream": False},
    )

    assert {name: body[name] for name in body.keys() - {"model", "messages"}} == {
        "stream": True,
        "tools": [{"name": "f", "description": "does f", "input_schema": schema, "eager_input_streaming": True}],
        "tool_choice": {"type": "any"},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 7,
        "metadata": {"user_id": "u"},
        "output_config": {"format": {"type": "json_schema", "schema": schema}},
        "top_k": 3,
    }


def test_thinking_takes_out_what_the_server_refuses_with_it() -> None:
    body = body_of(
        Message("user", "x"),
        tools=(ToolSpec("f", "does f"),),
        tool_choice="required",
        temperature=0.5,
        extra_body={"thinking": {"type": "enabled", "budget_tokens": 1024}},
    )

    assert "temperature" not in body
    assert body["tool_choice"] == {"type": "auto"}


def test_a_system_text_that_other_turns_begin_with_is_marked_where_that_ends() -> None:
    system = Message("system", "You guide.\n\nThe user is Ada.", metadata={"stable_characters": len("You guide.")})
    body = anthropic_body(ModelRequest(model="m", messages=(system, Message("user", "a"))), AnthropicOptions())

    assert [block["text"] for block in body["system"]] == ["You guide.", "The user is Ada."]
    assert all("cache_control" in block for block in body["system"])


def test_the_prompt_is_marked_for_the_cache_in_two_places() -> None:
    marked = body_of(Message("system", "s"), Message("user", "a"), Message("user", "b"), options=AnthropicOptions())

    assert [block.get("cache_control") for block in marked["system"]] == [{"type": "ephemeral"}]
    assert ["cache_control" in block for block in marked["messages"][0]["content"]] == [False, True]
    assert "cache_control" not in json.dumps(body_of(Message("system", "s"), Message("user", "a")))


def test_the_key_goes_into_its_own_header() -> None:
    assert AnthropicDialect().headers("k") == {"anthropic-version": "2023-06-01", "x-api-key": "k"}
    assert "x-api-key" not in AnthropicDialect().headers(None)
