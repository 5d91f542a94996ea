"""The model `scripted:demo`: a script that plays a model's part, so that the service can be tried without any key.

It streams, asks for the runtime's clock, pauses for the host's weather tool, and answers with what they gave. It says
that it is a script. The same request always gives the same answer.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any, Final

from app.domain.messages import Message, ToolCall, text_of
from app.domain.usage import Usage
from app.providers.base import CallsReady, Finish, ModelRequest, ProviderEvent, TextPiece, UsageReport
from app.providers.errors import failure
from app.providers.wire import dumps_text, loads

DEMO_MODEL: Final = "demo"
CLOCK_TOOL: Final = "current_time"
WEATHER_TOOL: Final = "get_weather"
_HOME: Final = "Berlin"

_CLOCK_WORDS: Final = re.compile(r"\b(time|clock|date|day is it|hour)\b", re.IGNORECASE)
_WEATHER_WORDS: Final = re.compile(r"\b(weather|forecast|rain|raining|temperature|umbrella)\b", re.IGNORECASE)
_CITY: Final = re.compile(r"\b(?:in|for|at|of)\s+((?:[^\W\d_a-z][\w'’-]*)(?:\s+[^\W\d_a-z][\w'’-]*)*)")
_PIECE: Final = re.compile(r"\S+\s*|\s+")

_WHAT_I_AM: Final = (
    "I am a script, not a model: no model provider is set up, so I only play one. "
    "Ask me for the time, and I call a tool of this service. "
    "Ask me about the weather in a city, and I stop until your program has told it. "
    "Set OPENAI_API_KEY to talk to a real model."
)


class DemoProvider:
    """The provider of the one model `demo`. `piece_seconds` is the time between two pieces of text."""

    def __init__(self, piece_seconds: float = 0.015, name: str = "scripted") -> None:
        self.name = name
        self._piece_seconds = piece_seconds

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        """See `Provider.stream`."""
        if request.model != DEMO_MODEL:
            message = f"The scripted provider has one model, {self.name}:{DEMO_MODEL}; there is no {request.model}."
            raise failure("invalid_request", self.name, message)
        calls = _wanted(request)
        text = "" if calls else _answer(request)
        for piece in _PIECE.findall(text):
            yield TextPiece(piece)
            await asyncio.sleep(self._piece_seconds)
        if calls:
            yield CallsReady(calls)
        yield UsageReport(_count(request, text, calls))
        yield Finish("tool_calls" if calls else "stop", response_model=DEMO_MODEL)

    async def aclose(self) -> None:
        """See `Provider.aclose`; there is nothing to give back."""


def _question(request: ModelRequest) -> tuple[str, Sequence[Message]]:
    """Give the text of the last user message and what came after it."""
    last = max((place for place, message in enumerate(request.messages) if message.role == "user"), default=None)
    if last is None:
        return "", ()
    return text_of(request.messages[last].content), request.messages[last + 1 :]


def _wanted(request: ModelRequest) -> tuple[ToolCall, ...]:
    """Give the calls that the question needs, are offered, and were not made yet."""
    question, since = _question(request)
    offered = {spec.name for spec in request.tools} if request.tool_choice != "none" else set()
    made = {call.name for message in since for call in message.tool_calls}
    turn = sum(1 for message in request.messages if message.role == "user")
    calls = []
    if _CLOCK_WORDS.search(question):
        calls.append(ToolCall(id=f"call_demo_{turn}_time", name=CLOCK_TOOL))
    if _WEATHER_WORDS.search(question):
        calls.append(ToolCall(id=f"call_demo_{turn}_weather", name=WEATHER_TOOL, arguments={"city": _city(question)}))
    return tuple(call for call in calls if call.name in offered and call.name not in made)


def _city(question: str) -> str:
    found = _CITY.search(question)
    return found.group(1) if found else _HOME


def _answer(request: ModelRequest) -> str:
    question, since = _question(request)
    calls = {call.id: call for message in since for call in message.tool_calls}
    told = [
        _reading(calls[message.tool_call_id], message)
        for message in since
        if message.role == "tool" and message.tool_call_id in calls
    ]
    missing = _missing(request, question, {call.name for call in calls.values()})
    if not told and not missing:
        return f"You said: {_short(question)} {_WHAT_I_AM}" if question.strip() else _WHAT_I_AM
    return " ".join((*told, *missing, "(I am a script, not a model.)"))


def _missing(request: ModelRequest, question: str, called: set[str]) -> list[str]:
    offered = {spec.name for spec in request.tools} | called
    missing = []
    if _CLOCK_WORDS.search(question) and CLOCK_TOOL not in offered:
        missing.append(f"I would call the tool {CLOCK_TOOL} for that, and it is not offered to me.")
    if _WEATHER_WORDS.search(question) and WEATHER_TOOL not in offered:
        missing.append(f"I would ask your program for the weather, but this turn offers no tool {WEATHER_TOOL}.")
    return missing


def _reading(made: ToolCall, message: Message) -> str:
    """Put one tool result into a sentence."""
    value: Any = text_of(message.content)
    with suppress(ValueError):
        value = loads(value.encode())
    subject = f"the weather in {made.arguments.get('city', _HOME)}" if made.name == WEATHER_TOOL else "the time"
    if message.is_error:
        return f"The tool could not tell {subject}: {_plain(value)}."
    return f"{subject[0].upper()}{subject[1:]}: {_plain(value)}."


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(entry)}" for name, entry in value.items())
    return value if isinstance(value, str) else dumps_text(value)


def _short(question: str, most: int = 80) -> str:
    line = " ".join(question.split())
    return f"\u201c{line if len(line) <= most else line[: most - 1] + '…'}\u201d."


def _count(request: ModelRequest, text: str, calls: tuple[ToolCall, ...]) -> Usage:
    """Count words as if they were tokens, so that usage shows up where it does with a model."""
    sent = sum(len(text_of(message.content).split()) for message in request.messages)
    return Usage(prompt_tokens=sent, completion_tokens=len(text.split()) + 5 * len(calls))
