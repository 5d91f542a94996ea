"""Chat Completions from bytes: each habit of a server with its outcome."""

from typing import Any

import pytest

from app.domain.messages import ToolCall
from app.domain.usage import Usage
from app.providers.base import CallPiece, CallsReady, CallStarted, Finish, ReasoningPiece, TextPiece, UsageReport
from app.providers.compat import PRESETS, ChatCompat
from tests.providers.chatting import calls_of, decode, usage
from tests.providers.reading import chunk, stream, text_of, tool_delta

PLAIN = stream(
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo \u2028🌍"}),
    chunk({}, "stop"),
    {"id": "c1", "choices": [], **usage(9, 3)},
)
TOOLS = stream(
    chunk({"role": "assistant", "content": None}),
    tool_delta(index=0, id="a", name="get_weather", arguments=""),
    tool_delta(index=0, arguments='{"city": "Köl'),
    tool_delta(index=0, arguments='n"}'),
    tool_delta(index=1, id="b", name="get_time", arguments="{}"),
    chunk({}, "tool_calls"),
)


def test_text_usage_and_finish_come_in_the_order_of_the_wire() -> None:
    assert decode(PLAIN) == (
        [
            TextPiece("Hel"),
            TextPiece("lo \u2028🌍"),
            UsageReport(Usage(9, 3)),
            Finish("stop", "stop", "m-1", "c1"),
        ],
        None,
    )


def test_calls_are_told_as_they_come_and_given_whole_with_the_finish_reason() -> None:
    assert decode(TOOLS) == (
        [
            CallStarted(0, "get_weather", "a"),
            CallPiece(0, '{"city": "Köl'),
            CallPiece(0, 'n"}'),
            CallStarted(1, "get_time", "b"),
            CallPiece(1, "{}"),
            CallsReady((ToolCall("a", "get_weather", {"city": "Köln"}), ToolCall("b", "get_time"))),
            Finish("tool_calls", "tool_calls", "m-1", "c1"),
        ],
        None,
    )


@pytest.mark.parametrize("wire", [PLAIN, TOOLS, PLAIN.replace(b"\n", b"\r\n"), PLAIN.replace(b"\n", b"\r")])
def test_the_events_are_the_same_wherever_the_bytes_are_cut(wire: bytes) -> None:
    whole = decode(wire)

    assert whole[1] is None
    for cut in range(len(wire)):
        assert decode(wire[:cut], wire[cut:]) == whole
    assert decode(*(wire[place : place + 1] for place in range(len(wire)))) == whole


def test_every_chunk_with_usage_is_reported_as_the_running_total_after_its_text() -> None:
    events, _ = decode(
        stream(
            chunk({"content": "a"}, **usage(100, 1)),
            chunk({"content": "b"}, **usage(100, 2)),
            chunk({}, "stop", **usage(100, 5)),
        )
    )

    assert events == [
        TextPiece("a"),
        UsageReport(Usage(100, 1)),
        TextPiece("b"),
        UsageReport(Usage(100, 2)),
        UsageReport(Usage(100, 5)),
        Finish("stop", "stop", "m-1", "c1"),
    ]


def test_usage_is_not_made_up_when_none_is_told() -> None:
    events, _ = decode(stream(chunk({"content": "a"}), chunk({}, "stop"), {"choices": [], "usage": None}))

    assert not [event for event in events if isinstance(event, UsageReport)]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 6},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(10, 4, 6, 3),
        ),
        ({"prompt_tokens": 10, "completion_tokens": 4, "prompt_cache_hit_tokens": 8}, Usage(10, 4, 8)),
        ({"prompt_tokens": 10, "prompt_tokens_details": None, "completion_tokens": None}, Usage(10, 0)),
        ({"prompt_tokens": 10.0, "completion_tokens": "many"}, Usage(10, 0)),
    ],
)
def test_token_details_are_read_where_servers_put_them(told: Any, expected: Usage) -> None:
    events, _ = decode(stream(chunk({"content": "a"}, "stop"), {"choices": [], "usage": told}))

    assert UsageReport(expected) in events


@pytest.mark.parametrize(
    "noise",
    [
        b": comment\n\n",
        b"data:\n\n",
        b"id: 3\nretry: 5\n\n",
        stream({"choices": None}, done=False),
        stream({"choices": [], "prompt_filter_results": []}, done=False),
        stream(chunk(None), done=False),
        stream({"object": "unheard.of"}, done=False),
        stream({"choices": [{"index": 1, "delta": {"content": "another choice"}}]}, done=False),
    ],
)
def test_what_says_nothing_changes_nothing(noise: bytes) -> None:
    events, error = decode(noise, stream(chunk({"content": "a"}), chunk({}, "stop"), done=False), noise)

    assert (events, error) == ([TextPiece("a"), Finish("stop", "stop", "m-1", "c1")], None)


@pytest.mark.parametrize("done", [b"data:[DONE]\n\n", b"data: [DONE]", b"data: [DONE] \r\n\r\n"])
def test_done_alone_ends_an_answer_well(done: bytes) -> None:
    events, error = decode(stream(chunk({"content": "a"}), done=False), done)

    assert (events, error) == ([TextPiece("a"), Finish("stop", None, "m-1", "c1")], None)


def test_a_finish_reason_alone_ends_an_answer_well() -> None:
    assert decode(stream(chunk({"content": "a"}, "stop"), done=False))[1] is None


def test_nothing_is_read_after_done() -> None:
    events, error = decode(PLAIN, stream(chunk({"content": "more"}), {"error": {"message": "late"}}))

    assert (text_of(events), error) == ("Hello \u2028🌍", None)


@pytest.mark.parametrize("tail", [b"", b'data: {"choices": [{"del', b"data: [DO"])
def test_an_end_in_the_middle_is_an_error_and_not_an_answer(tail: bytes) -> None:
    events, error = decode(stream(chunk({"content": "a"}, **usage(5, 1)), done=False), tail)

    assert events == [TextPiece("a"), UsageReport(Usage(5, 1))]
    assert error is not None
    assert (error.reason, error.retryable, error.usage) == ("truncated", True, Usage(5, 1))


def test_calls_of_an_answer_that_broke_off_are_not_given() -> None:
    outcome = decode(stream(tool_delta(index=0, id="a", name="f", arguments="{}"), done=False))

    assert calls_of(outcome) == []
    assert outcome[1] is not None


def test_done_without_anything_before_it_is_an_error() -> None:
    events, error = decode(stream(chunk({"role": "assistant", "content": ""})))

    assert events == []
    assert error is not None
    assert (error.reason, error.retryable) == ("server", True)


@pytest.mark.parametrize("data", ["{bad", '{"a": 1} {"b": 2}', "[1, 2]", '"text"'])
def test_an_event_that_is_not_one_object_is_a_protocol_error(data: str) -> None:
    events, error = decode(stream(chunk({"content": "a"}), data))

    assert events == [TextPiece("a")]
    assert error is not None
    assert error.reason == "protocol"


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        (stream({"error": {"message": "Overloaded", "type": "overloaded_error"}}), "overloaded"),
        (stream({"error": {}}), "server"),
        (stream({"error": "text"}), "server"),
        (stream({"object": "error", "message": "oops"}), "server"),
        (stream({"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 429}}]}), "rate_limited"),
        (stream(chunk({"content": ""}, "error")), "server"),
        (stream(chunk({}, "insufficient_system_resource")), "overloaded"),
        (stream({"choices": [{"delta": {}, "finish_reason": "stop", "native_finish_reason": "error"}]}), "server"),
        (b'event: error\ndata: {"message": "slot unavailable"}\n\n', "overloaded"),
        (b"event: error\ndata: not json\n\n", "server"),
    ],
)
def test_an_error_inside_the_stream_is_raised_in_whatever_form(wire: bytes, reason: str) -> None:
    events, error = decode(stream(chunk({"role": "assistant"}), done=False), wire)

    assert events == []
    assert error is not None
    assert error.reason == reason


def test_text_before_an_error_in_the_stream_is_given() -> None:
    events, error = decode(stream(chunk({"content": "a"}, **usage(3, 1)), {"error": {"message": "gone"}}))

    assert events == [TextPiece("a"), UsageReport(Usage(3, 1))]
    assert error is not None
    assert error.usage == Usage(3, 1)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("refusal", "refusal"),
        ("tool_calls", "other"),
        ("pause_turn", "other"),
        ("something new", "other"),
    ],
)
def test_finish_reasons_are_mapped_and_an_unknown_one_is_never_stop(raw: str, reason: str) -> None:
    events, _ = decode(stream(chunk({"content": "a"}), chunk({}, raw)))

    assert events[-1] == Finish(reason, raw, "m-1", "c1")  # type: ignore[arg-type]


def test_a_refusal_is_text_and_a_reason() -> None:
    events, _ = decode(stream(chunk({"refusal": "I won't"}), chunk({}, "stop")))

    assert events == [TextPiece("I won't"), Finish("refusal", "stop", "m-1", "c1")]


@pytest.mark.parametrize(
    ("delta", "compat"),
    [
        ({"reasoning_content": "hm"}, "generic"),
        ({"reasoning": "hm"}, "generic"),
        ({"reasoning": "hm", "reasoning_content": "hm"}, "openrouter"),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}, "mistral"),
    ],
)
def test_reasoning_is_read_from_the_field_that_the_server_uses_and_never_twice(delta: Any, compat: str) -> None:
    events, _ = decode(stream(chunk(delta), chunk({"content": "a"}, "stop")), compat=PRESETS[compat])

    assert events[:2] == [ReasoningPiece("hm"), TextPiece("a")]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 100])
def test_reasoning_in_tags_is_taken_out_however_the_deltas_cut_the_tags(size: int) -> None:
    text = "<think>a < b</think>\n\nThe answer is <b>. <thin"
    deltas = [chunk({"content": text[begin : begin + size]}) for begin in range(0, len(text), size)]

    events, _ = decode(stream(*deltas, chunk({}, "stop")), compat=ChatCompat(think_tags=True))

    assert "".join(event.text for event in events if isinstance(event, ReasoningPiece)) == "a < b"
    assert text_of(events) == "The answer is <b>. <thin"
    assert text_of(decode(stream(*deltas, chunk({}, "stop")))[0]) == text


def test_content_in_parts_is_text() -> None:
    events, _ = decode(stream(chunk({"content": [{"type": "text", "text": "a"}, {"type": "new"}]}, "stop")))

    assert events[0] == TextPiece("a")


def test_half_an_emoji_waits_for_its_other_half() -> None:
    wire = (
        b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n'
        b'data: {"choices":[{"delta":{"content":"\\ude00b"}}]}\n\n'
        b'data: {"choices":[{"delta":{"content":"\\ud83d"},"finish_reason":"stop"}]}\n\n'
    )

    assert text_of(decode(wire)[0]) == "a😀b\ufffd"
