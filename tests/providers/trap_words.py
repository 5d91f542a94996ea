"""What a trap is, and the words of each dialect to write one in."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.domain.usage import Usage
from app.providers.compat import ChatCompat
from app.providers.dialect import Dialect
from app.providers.dialects.anthropic import AnthropicDialect
from app.providers.dialects.chat import ChatDialect
from app.providers.dialects.gemini import GeminiDialect
from app.providers.dialects.responses import ResponsesDialect
from tests.providers import anthropic_wire, gemini_wire, responses_wire
from tests.providers.reading import chunk, stream, tool_delta

Call = tuple[str, dict[str, Any] | None]


@dataclass(frozen=True)
class Told:
    """What came of an answer. A call without arguments is one that can't be run; `usage` is the last running total."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    usage: Usage | None = None
    finish: str | None = None
    error: str | None = None
    retryable: bool | None = None


@dataclass(frozen=True)
class Trap:
    """What a server sends, and what has to come of it."""

    name: str
    dialect: Dialect
    data: bytes
    told: Told


@dataclass(frozen=True)
class Words:
    """One dialect's events, each as bytes."""

    name: str
    dialect: Dialect
    begin: bytes
    say: Callable[[str], bytes]
    call: Callable[[int, str, str], bytes]
    """Ask for a tool: place, name, arguments as text; without what ends the call."""

    end: Callable[[str], bytes]
    """End the answer with `stop`, `length` or `calls`."""

    event: Callable[[Any], bytes]
    """Send any document as an event."""

    error: Any
    """The document that tells of an overload inside a success."""

    usage: Usage | None = None
    """What `end` tells of tokens."""


def _anthropic_call(place: int, name: str, arguments: str) -> bytes:
    begun = anthropic_wire.block(place, type="tool_use", id=f"toolu_{place}", name=name, input={})
    return anthropic_wire.wire(begun, anthropic_wire.delta(place, "input_json_delta", partial_json=arguments))


def _responses_call(place: int, name: str, arguments: str) -> bytes:
    begun = responses_wire.added(place, type="function_call", call_id=f"call_{place}", name=name, arguments="")
    piece = {"type": "response.function_call_arguments.delta", "output_index": place, "delta": arguments}
    return responses_wire.wire(begun, piece)


def _responses_end(reason: str) -> bytes:
    if reason == "length":
        cut = responses_wire.completed("incomplete", incomplete_details={"reason": "max_output_tokens"})
        return responses_wire.wire(cut)
    return responses_wire.wire(responses_wire.completed())


def _gemini_call(_: int, name: str, arguments: str) -> bytes:
    return _gemini(gemini_wire.part({"functionCall": {"name": name, "args": arguments}}))


def _gemini(document: Any) -> bytes:
    return stream(document, done=False)


_ANTHROPIC_ENDS = {"stop": "end_turn", "length": "max_tokens", "calls": "tool_use"}

CHAT = Words(
    "chat",
    ChatDialect(ChatCompat()),
    stream(chunk({"role": "assistant", "content": ""}), done=False),
    lambda text: stream(chunk({"content": text}), done=False),
    lambda place, name, arguments: stream(
        tool_delta(index=place, id=f"call_{place}", name=name, arguments=arguments), done=False
    ),
    lambda reason: stream(
        chunk({}, {"calls": "tool_calls"}.get(reason, reason)),
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}},
    ),
    lambda document: stream(document, done=False),
    {"error": {"type": "overloaded_error", "message": "Overloaded"}},
    Usage(9, 4),
)
ANTHROPIC = Words(
    "anthropic",
    AnthropicDialect(),
    anthropic_wire.wire(anthropic_wire.start()),
    lambda text: anthropic_wire.wire(anthropic_wire.delta(0, "text_delta", text=text)),
    _anthropic_call,
    lambda reason: anthropic_wire.wire(
        anthropic_wire.ending(_ANTHROPIC_ENDS[reason], output_tokens=4), {"type": "message_stop"}
    ),
    lambda document: anthropic_wire.wire(document, names=False),
    {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    Usage(9, 4),
)
RESPONSES = Words(
    "responses",
    ResponsesDialect(),
    responses_wire.wire({"type": "response.created", "response": {"status": "in_progress"}}),
    lambda text: responses_wire.wire(responses_wire.said(text)),
    _responses_call,
    _responses_end,
    lambda document: stream(document, done=False),
    {"type": "response.failed", "response": {"error": {"code": "server_is_overloaded", "message": "Overloaded"}}},
    Usage(10, 6, 4, 2),
)
GEMINI = Words(
    "gemini",
    GeminiDialect(),
    _gemini(gemini_wire.part()),
    lambda text: _gemini(gemini_wire.part({"text": text})),
    _gemini_call,
    lambda reason: _gemini(
        gemini_wire.part(finish={"length": "MAX_TOKENS"}.get(reason, "STOP"), **gemini_wire.counts(9, 4))
    ),
    _gemini,
    {"error": {"code": 503, "status": "UNAVAILABLE", "message": "Overloaded"}},
    Usage(9, 4),
)
DIALECTS = (CHAT, ANTHROPIC, RESPONSES, GEMINI)
TEXT = "Ça va \u2028\u0085\x0b🌍?"
HALVES = ("a\ud83c", "\udf0db")
