"""What one dialect's servers alone are known to send, and what has to come of it."""

from collections.abc import Iterator
from typing import Any

from app.domain.usage import Usage
from app.providers.compat import ChatCompat
from app.providers.dialects.anthropic import AnthropicDialect
from app.providers.dialects.chat import ChatDialect
from app.providers.dialects.gemini import GeminiDialect
from app.providers.dialects.responses import ResponsesDialect
from tests.providers import anthropic_wire, gemini_wire, responses_wire
from tests.providers.reading import chunk, stream, tool_delta
from tests.providers.trap_words import Told, Trap

HELLO, STOP = chunk({"content": "Hello"}), chunk({}, "stop")


def special() -> Iterator[Trap]:
    """Give the traps that one dialect knows alone."""
    yield from _special_chat()
    yield from _chat_calls()
    yield from _chat_reasoning()
    yield from _special_anthropic()
    yield from _anthropic_calls()
    yield from _special_gemini()
    yield from _special_responses()


def chat(name: str, told: Told, *documents: Any, done: bool = True, compat: ChatCompat | None = None) -> Trap:
    return Trap(f"chat: {name}", ChatDialect(compat or ChatCompat()), stream(*documents, done=done), told)


def _special_chat() -> Iterator[Trap]:
    good = Told("Hello", finish="stop")
    running = {"prompt_tokens": 100, "completion_tokens": 5}
    yield chat("DONE alone ends an answer", good, HELLO)
    yield chat("a finish reason alone ends an answer", good, HELLO, STOP, done=False)
    yield chat("no usage is none", good, HELLO, STOP, {"choices": [], "usage": None})
    yield chat("DONE and nothing else", Told(error="server", retryable=True))
    yield chat("null choices and null deltas", good, {"choices": None}, chunk(None), HELLO, STOP)
    yield chat(
        "a running total with every chunk is not added up",
        Told("Hello", usage=Usage(100, 5), finish="stop"),
        chunk({"content": "Hel"}, usage={"prompt_tokens": 100, "completion_tokens": 2}),
        chunk({"content": "lo"}, usage=running),
        chunk({}, "stop", usage=running),
        {"choices": [], "usage": running},
    )
    yield chat(
        "an error in the first choice",
        Told("Hello", error="rate_limited", retryable=True),
        HELLO,
        {"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 429, "message": "slow"}}]},
    )
    yield chat(
        "a failure that only the native reason tells",
        Told(error="server", retryable=True),
        {"choices": [{"delta": {}, "finish_reason": "stop", "native_finish_reason": "error"}]},
    )


def _chat_calls() -> Iterator[Trap]:
    yield chat(
        "parallel calls all at index 0",
        Told(calls=(("f", {"x": 1}), ("g", {})), finish="tool_calls"),
        tool_delta(index=0, id="a", name="f", arguments='{"x": 1}'),
        tool_delta(index=0, id="b", name="g", arguments="{}"),
        STOP,
    )
    yield chat(
        "a name in every delta, and no id",
        Told(calls=(("f", {"x": 1}),), finish="tool_calls"),
        tool_delta(index=1, name="f", arguments='{"x"'),
        tool_delta(index=1, name="f", arguments=": 1}"),
        STOP,
    )
    yield chat(
        "arguments as an object, as nothing, and never",
        Told(calls=(("f", {"x": 1}), ("g", {}), ("h", {})), finish="tool_calls"),
        tool_delta(index=0, id="a", name="f", arguments={"x": 1}),
        tool_delta(index=1, id="b", name="g", arguments=None),
        tool_delta(index=2, id="c", name="h"),
        STOP,
    )


def _chat_reasoning() -> Iterator[Trap]:
    yield chat(
        "reasoning in two fields is told once",
        Told("Hello", "hm", finish="stop"),
        chunk({"reasoning": "hm", "reasoning_content": "hm"}),
        HELLO,
        STOP,
    )
    yield chat(
        "tags of reasoning that the deltas cut",
        Told("Hello", "hm", finish="stop"),
        *(chunk({"content": piece}) for piece in ("<th", "ink>h", "m</thi", "nk>", "\n\nHello")),
        STOP,
        compat=ChatCompat(think_tags=True),
    )
    yield chat("a refusal", Told("I won't.", finish="refusal"), chunk({"refusal": "I won't."}), STOP)
    for raw, reason in (("content_filter", "content_filter"), ("pause_turn", "other"), ("brand_new", "other")):
        yield chat(f"the finish reason {raw}", Told("Hello", finish=reason), HELLO, chunk({}, raw))


def _special_anthropic() -> Iterator[Trap]:
    wire, start, delta, ending = anthropic_wire.wire, anthropic_wire.start, anthropic_wire.delta, anthropic_wire.ending
    hello = delta(0, "text_delta", text="Hello")

    def anthropic(name: str, told: Told, *documents: Any, names: bool = True) -> Trap:
        return Trap(f"anthropic: {name}", AnthropicDialect(), wire(*documents, names=names), told)

    counted = Told("Hello", usage=Usage(9, 4), finish="stop")
    yield anthropic(
        "events without their names", counted, start(), hello, ending("end_turn", output_tokens=4), names=False
    )
    yield anthropic(
        "a running total with every chunk is not added up",
        counted,
        start(input_tokens=9, output_tokens=1),
        ending(None, output_tokens=2),
        hello,
        ending(None, output_tokens=3),
        ending("end_turn", output_tokens=4),
        {"type": "message_stop"},
    )
    yield anthropic(
        "no usage is none",
        Told("Hello", finish="stop"),
        {"type": "message_start", "message": {"model": "claude-x"}},
        hello,
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    )
    yield anthropic(
        "totals that leave the input out",
        Told("Hello", usage=Usage(109, 4, 100), finish="stop"),
        start(input_tokens=9, cache_read_input_tokens=100, output_tokens=1),
        hello,
        ending("end_turn", output_tokens=4),
    )
    yield anthropic(
        "thinking with its signature",
        Told("Hello", "hm", usage=Usage(9, 4), finish="stop"),
        start(),
        anthropic_wire.block(0, type="thinking", thinking=""),
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "signature_delta", signature="c2ln"),
        hello,
        ending("end_turn", output_tokens=4),
    )
    for raw, reason in (
        ("refusal", "refusal"),
        ("pause_turn", "other"),
        ("model_context_window_exceeded", "length"),
        ("brand_new", "other"),
    ):
        told = Told("Hello", usage=Usage(9, 0), finish=reason)
        yield anthropic(f"the stop reason {raw}", told, start(), hello, ending(raw))


def _anthropic_calls() -> Iterator[Trap]:
    block, delta, stopped = anthropic_wire.block, anthropic_wire.delta, anthropic_wire.stopped
    data = anthropic_wire.wire(
        anthropic_wire.start(),
        block(0, type="tool_use", id="a", name="f", input={}),
        delta(0, "input_json_delta", partial_json='{"x": 1}'),
        stopped(0),
        block(0, type="tool_use", id="b", name="g", input={}),
        delta(0, "input_json_delta", partial_json="{}"),
        stopped(0),
        anthropic_wire.ending("tool_use", output_tokens=4),
        {"type": "message_stop"},
    )
    told = Told(calls=(("f", {"x": 1}), ("g", {})), usage=Usage(9, 4), finish="tool_calls")
    yield Trap("anthropic: parallel calls all at index 0", AnthropicDialect(), data, told)


def _special_gemini() -> Iterator[Trap]:
    part = gemini_wire.part

    def gemini(name: str, told: Told, *documents: Any) -> Trap:
        return Trap(f"gemini: {name}", GeminiDialect(), stream(*documents, done=False), told)

    yield gemini(
        "thoughts are counted beside the candidates",
        Told("Hello", "hm", usage=Usage(9, 6, 4, 2), finish="stop"),
        part({"text": "hm", "thought": True}),
        part(
            {"text": "Hello"},
            finish="STOP",
            **gemini_wire.counts(9, 4, thoughtsTokenCount=2, cachedContentTokenCount=4),
        ),
    )
    yield gemini(
        "a running total with every chunk is not added up",
        Told("Hello", usage=Usage(9, 4), finish="stop"),
        part({"text": "Hel"}, **gemini_wire.counts(9, 2)),
        part({"text": "lo"}, **gemini_wire.counts(9, 4)),
        part(finish="STOP", **gemini_wire.counts(9, 4)),
    )
    yield gemini("no usage is none", Told("Hello", finish="stop"), part({"text": "Hello"}), part(finish="STOP"))
    yield gemini("a stop without any part", Told(finish="other"), part(finish="STOP"))
    yield gemini(
        "a call that could not be written", Told(error="server", retryable=True), part(finish="MALFORMED_FUNCTION_CALL")
    )
    yield gemini(
        "a prompt that is blocked",
        Told(error="content_filter", retryable=False),
        {"promptFeedback": {"blockReason": "SAFETY"}},
    )
    for raw, reason in (("SAFETY", "content_filter"), ("MAX_TOKENS", "length"), ("BRAND_NEW", "other")):
        yield gemini(f"the finish reason {raw}", Told("Hello", finish=reason), part({"text": "Hello"}, finish=raw))


def _special_responses() -> Iterator[Trap]:
    wire, said, completed = responses_wire.wire, responses_wire.said, responses_wire.completed

    def responses(name: str, told: Told, *documents: Any) -> Trap:
        return Trap(f"responses: {name}", ResponsesDialect(), wire(*documents), told)

    usage = Usage(10, 6, 4, 2)
    yield responses(
        "a text that no delta told",
        Told("Hello", usage=usage, finish="stop"),
        responses_wire.item(0, type="message", content=[{"type": "output_text", "text": "Hello"}]),
        completed(),
    )
    yield responses(
        "a refusal",
        Told("No.", usage=usage, finish="refusal"),
        {"type": "response.refusal.delta", "output_index": 0, "delta": "No."},
        completed(),
    )
    yield responses(
        "an answer that a filter cut",
        Told("Hello", usage=usage, finish="content_filter"),
        said("Hello"),
        completed("incomplete", incomplete_details={"reason": "content_filter"}),
    )
    yield responses(
        "a failure with its bill",
        Told("Hello", usage=usage, error="rate_limited", retryable=True),
        said("Hello"),
        completed("failed", error={"code": "rate_limit_exceeded", "message": "slow"}),
    )
    yield responses("no usage is none", Told("Hello", finish="stop"), said("Hello"), completed(usage=None))
    yield responses(
        "parallel calls all at index 0",
        Told(calls=(("f", {"x": 1}), ("g", {})), usage=usage, finish="tool_calls"),
        *_responses_call("a", "f", '{"x": 1}'),
        *_responses_call("b", "g", "{}"),
        completed(output=[_responses_item("a", "f", '{"x": 1}'), _responses_item("b", "g", "{}")]),
    )
    yield Trap(
        "responses: events without their names",
        ResponsesDialect(),
        stream(said("Hello"), completed(), done=False),
        Told("Hello", usage=usage, finish="stop"),
    )
    yield Trap(
        "responses: DONE is no end",
        ResponsesDialect(),
        wire(said("Hello")) + b"data: [DONE]\n\n",
        Told("Hello", error="truncated", retryable=True),
    )


def _responses_call(call_id: str, name: str, arguments: str) -> Iterator[Any]:
    """Give the events of a whole call, at place 0."""
    yield responses_wire.added(0, **_responses_item(call_id, name, ""))
    yield {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": arguments}
    yield responses_wire.item(0, **_responses_item(call_id, name, arguments))


def _responses_item(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
