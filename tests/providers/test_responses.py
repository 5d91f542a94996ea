"""OpenAI Responses from bytes, and the body that is sent."""

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
from app.providers.dialects.responses.body import responses_body
from app.providers.dialects.responses.decoder import ResponsesDecoder
from app.providers.reasoning import ReasoningKeeper
from tests.providers.reading import Outcome, read, text_of
from tests.providers.responses_wire import USAGE, added, completed, item, said, wire

ITEM = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "abc"}


def decode(*pieces: bytes) -> Outcome:
    numbers = itertools.count(1)
    return read(ResponsesDecoder("openai", new_id=lambda: f"made_{next(numbers)}"), *pieces)


TOOLS = wire(
    {"type": "response.created", "response": {"id": "r", "status": "in_progress"}},
    added(0, type="reasoning", id="rs_1"),
    {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "hm"},
    {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 1},
    {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "so"},
    {"type": "response.output_item.done", "output_index": 0, "item": {**ITEM, "status": None}},
    said("Let me loo", 1),
    said("k \u2028🌍", 1),
    item(1, type="message", content=[{"type": "output_text", "text": "Let me look \u2028🌍"}]),
    added(2, type="function_call", id="fc_1", call_id="call_1", name="get_weather", arguments=""),
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"city": "Kö'},
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": 'ln"}'},
    item(2, type="function_call", id="fc_1", call_id="call_1", name="get_weather", arguments='{"city": "Köln"}'),
    item(3, type="function_call", id="fc_2", call_id="call_2", name="get_time", arguments=""),
    completed(),
)
EXPECTED: list[ProviderEvent] = [
    ReasoningPiece("hm"),
    ReasoningPiece("\n\n"),
    ReasoningPiece("so"),
    ReasoningPiece("", "item:" + json.dumps(ITEM, separators=(",", ":"))),
    TextPiece("Let me loo"),
    TextPiece("k \u2028🌍"),
    CallStarted(0, "get_weather", "call_1"),
    CallPiece(0, '{"city": "Kö'),
    CallPiece(0, 'ln"}'),
    CallStarted(1, "get_time", "call_2"),
    CallsReady((ToolCall("call_1", "get_weather", {"city": "Köln"}), ToolCall("call_2", "get_time"))),
    UsageReport(Usage(10, 6, 4, 2)),
    Finish("tool_calls", "completed", "gpt-x"),
]


def test_reasoning_text_calls_usage_and_finish_come_in_order() -> None:
    assert decode(TOOLS) == (EXPECTED, None)


def test_the_events_are_the_same_wherever_the_bytes_are_cut() -> None:
    for cut in range(len(TOOLS)):
        assert decode(TOOLS[:cut], TOOLS[cut:]) == (EXPECTED, None)


def test_what_no_delta_told_is_read_from_the_whole_items_once() -> None:
    message: dict[str, Any] = {"type": "message", "content": [{"type": "output_text", "text": "whole"}]}
    made = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}

    late, _ = decode(wire(completed(output=[message, made])))
    twice, _ = decode(wire(said("whole"), item(0, **message), completed(output=[message, made])))

    for events in (late, twice):
        assert text_of(events) == "whole"
        assert CallsReady((ToolCall("c", "f"),)) in events


@pytest.mark.parametrize(
    ("details", "reason", "raw"),
    [
        ({"reason": "max_output_tokens"}, "length", "max_output_tokens"),
        ({"reason": "content_filter"}, "content_filter", "content_filter"),
        ({"reason": "unheard_of"}, "other", "unheard_of"),
        (None, "other", "incomplete"),
    ],
)
def test_an_incomplete_answer_says_why(details: Any, reason: Any, raw: str) -> None:
    events, error = decode(wire(said("a"), completed("incomplete", incomplete_details=details)))

    assert error is None
    assert events[-1] == Finish(reason, raw, "gpt-x")


def test_a_call_that_the_length_limit_cut_is_invalid() -> None:
    events, _ = decode(
        wire(
            added(0, type="function_call", call_id="c", name="f"),
            {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"a": '},
            added(1, type="function_call", call_id="d", name="g"),
            completed("incomplete", incomplete_details={"reason": "max_output_tokens"}),
        )
    )

    assert CallsReady((ToolCall("c", "f", {}, invalid='{"a": '), ToolCall("d", "g", {}, invalid=""))) in events


def test_a_call_with_an_id_that_is_missing_or_repeated_gets_its_own() -> None:
    made = {"type": "function_call", "name": "f", "arguments": "{}"}
    events, _ = decode(wire(item(0, **made), item(1, call_id="c", **made), item(2, call_id="c", **made), completed()))

    calls = next(event for event in events if isinstance(event, CallsReady)).calls
    assert [call.id for call in calls] == ["made_1", "c", "made_2"]


def test_a_refusal_is_text_and_a_reason() -> None:
    events, _ = decode(wire({"type": "response.refusal.delta", "output_index": 0, "delta": "I won't"}, completed()))

    assert events[0] == TextPiece("I won't")
    assert events[-1] == Finish("refusal", "completed", "gpt-x")


def test_a_failed_response_is_an_error_with_its_bill() -> None:
    decoder = ResponsesDecoder("openai")
    failed = {
        "type": "response.failed",
        "response": {"error": {"code": "server_error", "message": "oops"}, "usage": USAGE},
    }

    _, error = read(decoder, wire(failed))

    assert error is not None
    assert (error.reason, decoder.usage) == ("server", Usage(10, 6, 4, 2))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (wire({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}), "rate_limited"),
        (wire({"type": "error", "error": {"type": "insufficient_quota", "message": "x"}}), "quota"),
        (wire({"type": "response.failed", "response": {"error": None}}), "server"),
        (b"data: {bad\n\n", "protocol"),
    ],
)
def test_an_error_inside_the_stream_is_raised(data: bytes, reason: str) -> None:
    events, error = decode(wire(said("a")), data)

    assert text_of(events) == "a"
    assert error is not None
    assert error.reason == reason


def test_an_end_in_the_middle_is_an_error_although_the_server_said_done() -> None:
    _, error = decode(wire(said("a")), b"data: [DONE]\n\n")

    assert error is not None
    assert error.reason == "truncated"


def test_events_and_items_that_are_not_known_are_left_out() -> None:
    events, error = decode(
        wire(
            {"type": "response.audio.delta", "delta": "x"},
            {"type": "response.unheard_of"},
            item(0, type="web_search_call", id="w"),
            said("a", 1),
            completed(usage=None),
        )
    )

    assert (events, error) == ([TextPiece("a"), Finish("stop", "completed", "gpt-x")], None)


# The body -------------------------------------------------------------------------------------------------------------


def test_messages_become_items() -> None:
    keeper = ReasoningKeeper("openai", "gpt-x")
    for event in EXPECTED:
        keeper.push(event)
    body = responses_body(
        ModelRequest(
            "gpt-x",
            (
                Message("system", "be kind"),
                Message("user", "weather?"),
                Message("assistant", "Wait.", tool_calls=(ToolCall("a", "f", {"x": 1}),), metadata=keeper.metadata()),
                Message("tool", "mild", tool_call_id="a"),
                Message("assistant", "Mild."),
                Message("thought", "never sent"),
            ),
        )
    )

    assert body == {
        "model": "gpt-x",
        "input": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": "weather?"},
            ITEM,
            {"role": "assistant", "content": "Wait."},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"x":1}'},
            {"type": "function_call_output", "call_id": "a", "output": "mild"},
            {"role": "assistant", "content": "Mild."},
        ],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


def test_parts_become_input_parts() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "look"},
        {"type": "image", "data": "AAAA", "mime_type": "image/png"},
        {"type": "audio", "data": "BBBB", "mime_type": "audio/wav"},
    ]

    assert responses_body(ModelRequest("m", (Message("user", parts),)))["input"][0]["content"] == [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
        {"type": "input_audio", "input_audio": {"data": "BBBB", "format": "wav"}},
    ]


def test_options_and_tools_are_sent_in_the_dialects_words() -> None:
    schema = {"type": "object"}
    body = responses_body(
        ModelRequest(
            "m",
            (Message("user", "x"),),
            tools=(ToolSpec("f", "does f", schema),),
            tool_choice="required",
            temperature=0.5,
            max_tokens=7,
            response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}},
            extra_body={"reasoning": {"effort": "low"}, "store": True},
        )
    )

    assert body["tools"] == [
        {"type": "function", "name": "f", "description": "does f", "parameters": schema, "strict": False}
    ]
    assert body["text"] == {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    assert (body["tool_choice"], body["temperature"], body["max_output_tokens"]) == ("required", 0.5, 7)
    assert (body["reasoning"], body["store"]) == ({"effort": "low"}, False)
