"""Gemini from bytes, and the body that is sent."""

import itertools
from dataclasses import replace
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
from app.providers.dialects.gemini import GeminiDialect
from app.providers.dialects.gemini.body import NO_SIGNATURE, gemini_body
from app.providers.dialects.gemini.decoder import GeminiDecoder
from tests.providers.gemini_wire import counts, part
from tests.providers.reading import Outcome, read, stream, text_of


def decode(*pieces: bytes) -> Outcome:
    numbers = itertools.count(1)
    return read(GeminiDecoder("gemini", new_id=lambda: f"made_{next(numbers)}"), *pieces)


CALL = {"functionCall": {"name": "get_weather", "args": {"city": "Köln"}}, "thoughtSignature": "sig"}
TOOLS = stream(
    part({"text": "hm", "thought": True}, **counts(9, 0, thoughtsTokenCount=2)),
    part({"text": "Let me \u2028🌍"}, **counts(9, 3)),
    part(CALL, {"functionCall": {"name": "get_time", "id": "f2"}}),
    part(finish="STOP", **counts(9, 7, thoughtsTokenCount=2, cachedContentTokenCount=4)),
    done=False,
)
EXPECTED: list[ProviderEvent] = [
    ReasoningPiece("hm"),
    UsageReport(Usage(9, 2, 0, 2)),
    TextPiece("Let me \u2028🌍"),
    UsageReport(Usage(9, 5, 0, 2)),
    CallStarted(0, "get_weather"),
    CallPiece(0, '{"city":"Köln"}'),
    CallStarted(1, "get_time", "f2"),
    CallsReady(
        (
            ToolCall("made_1", "get_weather", {"city": "Köln"}, extra={"gemini": {"signature": "sig"}}),
            ToolCall("f2", "get_time", extra={"gemini": {"id": "f2"}}),
        )
    ),
    UsageReport(Usage(9, 9, 4, 2)),
    Finish("tool_calls", "STOP", "gemini-x"),
]


def test_thoughts_text_calls_usage_and_finish_come_in_order() -> None:
    assert decode(TOOLS) == (EXPECTED, None)


def test_the_events_are_the_same_wherever_the_bytes_are_cut() -> None:
    for cut in range(len(TOOLS)):
        assert decode(TOOLS[:cut], TOOLS[cut:]) == (EXPECTED, None)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("OTHER", "other"),
        ("UNHEARD_OF", "other"),
    ],
)
def test_finish_reasons_are_mapped(raw: str, reason: Any) -> None:
    assert decode(stream(part({"text": "a"}, finish=raw)))[0][-1] == Finish(reason, raw, "gemini-x")


def test_a_stop_without_any_part_is_no_good_stop() -> None:
    assert decode(stream(part(finish="STOP")))[0][-1] == Finish("other", "STOP", "gemini-x")


@pytest.mark.parametrize("raw", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
def test_a_call_that_the_model_could_not_write_is_a_failure_worth_another_try(raw: str) -> None:
    events, error = decode(stream(part(finish=raw, **counts(9, 0))))

    assert events == []
    assert error is not None
    assert (error.reason, error.retryable) == ("server", True)


def test_a_prompt_that_is_blocked_is_refused_content_with_its_bill() -> None:
    decoder = GeminiDecoder("gemini")

    _, error = read(decoder, stream({"promptFeedback": {"blockReason": "SAFETY"}, **counts(9, 0)}))

    assert error is not None
    assert (error.reason, error.retryable, decoder.usage) == ("content_filter", False, Usage(9))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (stream({"error": {"code": 503, "status": "UNAVAILABLE", "message": "overloaded"}}), "overloaded"),
        (stream({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow"}}), "rate_limited"),
        (stream({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "no"}}), "invalid_request"),
        (stream("{bad"), "protocol"),
        (b"", "truncated"),
    ],
)
def test_an_error_inside_the_stream_is_raised(data: bytes, reason: str) -> None:
    events, error = decode(stream(part({"text": "a"}), done=False), data)

    assert text_of(events) == "a"
    assert error is not None
    assert error.reason == reason


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (None, ToolCall("made_1", "f")),
        ({}, ToolCall("made_1", "f")),
        ('{"a": 1}', ToolCall("made_1", "f", {"a": 1})),
        ([1], ToolCall("made_1", "f", invalid="[1]")),
    ],
)
def test_arguments_come_as_an_object_as_text_or_not_at_all(args: Any, expected: ToolCall) -> None:
    events, _ = decode(stream(part({"functionCall": {"name": "f", "args": args}}, finish="STOP")))

    assert CallsReady((expected,)) in events


def test_a_repeated_call_id_gets_its_own() -> None:
    made = {"functionCall": {"name": "f", "id": "x"}}
    (ready,) = (event for event in decode(stream(part(made, made, finish="STOP")))[0] if isinstance(event, CallsReady))

    assert [call.id for call in ready.calls] == ["x", "made_1"]


# The body -------------------------------------------------------------------------------------------------------------

ROUND = ModelRequest(
    "gemini-2.5-pro",
    (
        Message("system", "be kind"),
        Message("user", "weather?"),
        Message(
            "assistant",
            "Wait.",
            tool_calls=(
                ToolCall("a", "f", {"x": 1}, extra={"gemini": {"signature": "sig", "id": "own"}}),
                ToolCall("b", "g"),
            ),
        ),
        Message("tool", '{"sky": "clear"}', tool_call_id="a"),
        Message("tool", "no", tool_call_id="b", is_error=True),
        Message("user", "go on"),
    ),
)


def test_a_tool_round_is_sent_by_name_with_signatures_and_ids_of_its_own() -> None:
    body = gemini_body(ROUND)

    assert body["systemInstruction"] == {"parts": [{"text": "be kind"}]}
    assert body["contents"] == [
        {"role": "user", "parts": [{"text": "weather?"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Wait."},
                {"functionCall": {"name": "f", "args": {"x": 1}, "id": "own"}, "thoughtSignature": "sig"},
                {"functionCall": {"name": "g", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "f", "response": {"sky": "clear"}, "id": "own"}},
                {"functionResponse": {"name": "g", "response": {"error": "no"}}},
                {"text": "go on"},
            ],
        },
    ]


def test_a_round_of_another_model_gets_the_word_that_stands_in_for_a_signature() -> None:
    foreign = Message("assistant", tool_calls=(ToolCall("a", "f"), ToolCall("b", "g")))
    request = ModelRequest("gemini-3-pro", (Message("user", "x"), foreign))

    signed = gemini_body(request)["contents"][1]["parts"]

    assert [call.get("thoughtSignature") for call in signed] == [NO_SIGNATURE, None]
    old = gemini_body(replace(request, model="gemini-2.5-pro"))["contents"][1]["parts"]
    assert [call.get("thoughtSignature") for call in old] == [None, None]


def test_parts_become_the_parts_of_the_dialect() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "url": "https://example.org/a.jpg?x=1"},
        {"type": "image_url", "url": "data:image/gif;base64,AAAA"},
        {"type": "audio", "data": "BBBB", "mime_type": "audio/wav"},
    ]

    assert gemini_body(ModelRequest("m", (Message("user", parts),)))["contents"][0]["parts"] == [
        {"text": "look"},
        {"fileData": {"fileUri": "https://example.org/a.jpg?x=1", "mimeType": "image/jpeg"}},
        {"inlineData": {"mimeType": "image/gif", "data": "AAAA"}},
        {"inlineData": {"mimeType": "audio/wav", "data": "BBBB"}},
    ]


def test_options_and_tools_are_sent_in_the_dialects_words() -> None:
    schema = {"type": "object"}
    body = gemini_body(
        ModelRequest(
            "m",
            (Message("user", "x"),),
            tools=(ToolSpec("f", "does f", schema),),
            tool_choice="required",
            temperature=0.5,
            max_tokens=7,
            response_format={"type": "json_schema", "json_schema": {"schema": schema}},
            extra_body={"generationConfig": {"topK": 3}, "safetySettings": [], "contents": []},
        )
    )

    assert {name: body[name] for name in body.keys() - {"contents"}} == {
        "tools": [{"functionDeclarations": [{"name": "f", "description": "does f", "parametersJsonSchema": schema}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        "generationConfig": {
            "temperature": 0.5,
            "maxOutputTokens": 7,
            "responseMimeType": "application/json",
            "responseJsonSchema": schema,
            "topK": 3,
        },
        "safetySettings": [],
    }
    assert body["contents"] == [{"role": "user", "parts": [{"text": "x"}]}]


def test_the_model_stands_in_the_path_and_the_key_in_its_own_header() -> None:
    dialect = GeminiDialect()

    assert dialect.path(ModelRequest("a/b", ())) == "/models/a%2Fb:streamGenerateContent?alt=sse"
    assert dialect.headers("k") == {"x-goog-api-key": "k"}
