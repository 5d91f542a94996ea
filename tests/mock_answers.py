"""The answers of the test model server: from the steps of a script, or made up from the request, to bytes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final

ID: Final = "chatcmpl-mock"
WEATHER: Final = "get_weather"


class Ending(Enum):
    """How an answer ends other than by being whole."""

    HANG = "hang"
    RESET = "reset"
    CUT = "cut"
    EOF = "eof"


class Gate(str):
    """A point at which the answer stands still until the test opens it by its name."""

    __slots__ = ()


Action = bytes | float | Gate | Ending
"""Bytes to send, seconds to wait, a gate to wait at, or an ending."""

Step = Mapping[str, Any]


def actions(steps: Sequence[Step], model: str, *, bare: bool = False) -> Iterator[Action]:
    """Turn steps into what the server does; what a whole answer lacks is added unless it is `bare`."""
    for step in steps if bare else [*steps, *_lacking(steps)]:
        (kind, value), *_ = step.items()
        yield from _action(kind, value, model)


def sse(document: Any, event: str = "") -> bytes:
    """Give one event."""
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(document)}\n\n".encode()


def default_steps(body: Mapping[str, Any]) -> list[Step]:
    """Answer by what was asked: the result when there is one, the weather tool when it is about that, else an echo."""
    messages = body.get("messages") or []
    offered = {tool.get("function", {}).get("name") for tool in body.get("tools") or ()}
    last = messages[-1] if messages else {}
    asked = next((_text(message) for message in reversed(messages) if message.get("role") == "user"), "")
    if last.get("role") == "tool":
        said = f"The tool says: {_text(last)}"
    elif "weather" in asked.lower() and WEATHER in offered:
        turn = sum(message.get("role") == "user" for message in messages)
        arguments = json.dumps({"city": "Berlin"})
        return [{"call": {"id": f"call_mock_{turn}", "name": WEATHER, "arguments": arguments, "pieces": 3}}]
    else:
        said = f"You said: {asked}"
    return [{"text": piece} for piece in _pieces(said)]


def _action(kind: str, value: Any, model: str) -> Iterator[Action]:
    match kind:
        case "text":
            yield _delta(model, {"content": value})
        case "reasoning":
            yield _delta(model, {"reasoning_content": value})
        case "call":
            yield from _call(model, value)
        case "usage":
            usage = {"prompt_tokens": value["prompt"], "completion_tokens": value["completion"]}
            yield sse({"id": ID, "object": "chat.completion.chunk", "model": model, "choices": [], "usage": usage})
        case "finish":
            yield _delta(model, {}, finish=value)
        case "done":
            yield b"data: [DONE]\n\n"
        case "event":
            yield sse(value)
        case "raw":
            yield value if isinstance(value, bytes) else value.encode()
        case "wait" | "gate":
            yield float(value) if kind == "wait" else Gate(value)
        case _:
            yield Ending(kind)


def _lacking(steps: Sequence[Step]) -> list[Step]:
    kinds = {kind for step in steps for kind in step}
    if kinds & {ending.value for ending in Ending}:
        return []
    lacking: list[Step] = []
    if "finish" not in kinds:
        lacking.append({"finish": "tool_calls" if "call" in kinds else "stop"})
    if "usage" not in kinds:
        lacking.append({"usage": {"prompt": 10, "completion": 5}})
    if "done" not in kinds:
        lacking.append({"done": True})
    return lacking


def _delta(model: str, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return sse({"id": ID, "object": "chat.completion.chunk", "model": model, "choices": [choice]})


def _call(model: str, told: Mapping[str, Any]) -> Iterator[bytes]:
    """Send a call as providers do: id and name first, then the arguments in pieces."""
    index = told.get("index", 0)
    arguments = told.get("arguments", "{}")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    first = {"index": index, "id": told.get("id", "call_mock"), "type": "function"}
    yield _delta(model, {"tool_calls": [{**first, "function": {"name": told["name"], "arguments": ""}}]})
    size = max(1, -(-len(text) // int(told.get("pieces", 1))))
    for begin in range(0, len(text), size):
        piece = {"index": index, "function": {"arguments": text[begin : begin + size]}}
        yield _delta(model, {"tool_calls": [piece]})


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content if part.get("type") == "text")
    return str(content or "")


def _pieces(text: str, size: int = 12) -> list[str]:
    return [text[begin : begin + size] for begin in range(0, len(text), size)]
