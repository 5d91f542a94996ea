"""The body of an Anthropic Messages request.

Turns alternate there: the results of a tool round and what the user says next are one user turn, results first. System
messages stand outside the turns, wherever they stood in the list.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.domain.frozen import dataclass
from app.domain.messages import STABLE_CHARACTERS, Content, Message, text_of
from app.domain.turn import Effort
from app.providers.base import ModelRequest
from app.providers.parts import AudioPart, FilePart, ImagePart, Part, TextPart, not_shown, read_parts
from app.providers.reasoning import blocks_of

_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OURS: Final = frozenset({"messages", "stream"})
REDACTED: Final = "redacted:"
"""What a kept signature begins with when the block's content was hidden by the provider."""


_THOUGHTS: Final[dict[str, int]] = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384}
"""Tokens to think with, by effort."""

_TAKES_A_BUDGET: Final = re.compile(r"claude-(?:[a-z]+-)?(?:[1-3]\b|4(?![-.](?:[6-9]|\d\d)(?!\d)))")
"""Models up to 4.5 are told how many tokens to think with; later ones decide by themselves, and are told an effort."""


@dataclass(frozen=True, slots=True)
class AnthropicOptions:
    """What a request does not say.

    `max_tokens` is sent when a request names none, since the dialect demands one. `cache` sets the breakpoints of
    prompt caching: after the part of the system text that other turns share, which also covers the tools, after all of
    it, and after the last turn.
    """

    max_tokens: int = 8192
    cache: bool = True


def anthropic_body(request: ModelRequest, options: AnthropicOptions) -> dict[str, Any]:
    """Give the document to send."""
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_tokens or options.max_tokens,
        "messages": _turns(request.messages),
        "stream": True,
    }
    if system := _system(request.messages):
        body["system"] = system
    body.update(_settings(request))
    if request.reasoning_effort is not None:
        _think(body, request.model, request.reasoning_effort)
    body.update((name, value) for name, value in request.extra_body.items() if name not in _OURS)
    _suit_thinking(body)
    if options.cache:
        _mark_for_cache(body, request.messages)
    return body


def _think(body: dict[str, Any], model: str, effort: Effort) -> None:
    """Say how much to think; the dialect counts thoughts as part of the answer, so it gets room for them."""
    budget = _THOUGHTS.get(effort, 0)
    body["max_tokens"] += budget
    if _TAKES_A_BUDGET.search(model):
        if budget:
            body["thinking"] = {"type": "enabled", "budget_tokens": budget}
    elif budget:
        body["thinking"] = {"type": "adaptive"}
        body["output_config"] = {**body.get("output_config", {}), "effort": "low" if effort == "minimal" else effort}
    else:
        body["thinking"] = {"type": "disabled"}  # some of them think unless they are told not to


def _settings(request: ModelRequest) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if request.temperature is not None:
        settings["temperature"] = request.temperature
    if request.top_p is not None:
        settings["top_p"] = request.top_p
    if request.user is not None:
        settings["metadata"] = {"user_id": request.user}
    if request.tools:
        settings["tools"] = [
            {
                "name": spec.name,
                "description": spec.description,
                "input_schema": dict(spec.input_schema),
                "eager_input_streaming": True,  # else long arguments come after minutes of silence, all at once
            }
            for spec in request.tools
        ]
        if request.tool_choice != "auto":
            settings["tool_choice"] = {"type": _CHOICES[request.tool_choice]}
    wanted = request.response_format or {}
    if wanted.get("type") == "json_schema":
        schema = (wanted.get("json_schema") or wanted).get("schema")
        settings["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    return settings


def _suit_thinking(body: dict[str, Any]) -> None:
    """Take out what the server refuses together with thinking: a temperature, and a forced tool."""
    thinking = body.get("thinking")
    if not isinstance(thinking, Mapping) or thinking.get("type") not in {"enabled", "adaptive"}:
        return
    body.pop("temperature", None)
    if body.get("tool_choice", {}).get("type") in {"any", "tool"}:
        body["tool_choice"] = {"type": "auto"}


def _mark_for_cache(body: dict[str, Any], messages: tuple[Message, ...]) -> None:
    system = body.get("system") or []
    if messages and STABLE_CHARACTERS in (messages[0].metadata or {}):
        system[0]["cache_control"] = {"type": "ephemeral"}
    last_turn = body["messages"][-1]["content"] if body["messages"] else []
    for blocks in (system, last_turn):
        if blocks and blocks[-1].get("type") not in {"thinking", "redacted_thinking"}:
            blocks[-1]["cache_control"] = {"type": "ephemeral"}


def _system(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Give a block for each system message; one that begins as those of other turns do is two blocks."""
    texts: list[str] = []
    for message in messages:
        if message.role in {"system", "summary"}:
            text, stable = text_of(message.content), (message.metadata or {}).get(STABLE_CHARACTERS, 0)
            texts += [text[:stable], text[stable:].lstrip()] if stable else [text]
    return [{"type": "text", "text": text} for text in texts if text.strip()]


def _turns(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for message in messages:
        blocks = list(_blocks(message))
        role = "assistant" if message.role == "assistant" else "user"
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].extend(blocks)
        else:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: Message) -> Iterator[dict[str, Any]]:
    if message.role == "user":
        yield from _user(message)
    elif message.role == "tool":
        yield _result(message)
    elif message.role == "assistant":
        yield from _assistant(message)


def _user(message: Message) -> Iterator[dict[str, Any]]:
    if not isinstance(message.content, list):
        if message.content:
            yield {"type": "text", "text": message.content}
        return
    for part in read_parts(message.content):
        if isinstance(part, AudioPart):
            # The dialect takes no sound; the model is to know that there was some.
            yield {"type": "text", "text": "[The user sent a sound that this model can't hear.]"}
        else:
            yield from _part(part)


def _part(part: Part) -> Iterator[dict[str, Any]]:
    """Give a part's block; nothing for an empty text, which the server refuses."""
    match part:
        case TextPart(text):
            if text:
                yield {"type": "text", "text": text}
        case ImagePart():
            yield {"type": "image", "source": _source(part)}
        case FilePart(data, mime_type, name):
            if part.is_pdf:
                document = {"type": "document", "source": {"type": "base64", "media_type": mime_type, "data": data}}
                yield {**document, "title": name} if name else document
            else:
                yield {"type": "text", "text": part.text() or not_shown(part)}
        case AudioPart():
            yield {"type": "text", "text": not_shown(part)}


def _source(image: ImagePart) -> dict[str, Any]:
    inline = image.inline()
    if inline is None:
        return {"type": "url", "url": image.url}
    mime_type, data = inline
    return {"type": "base64", "media_type": mime_type, "data": data}


def _result(message: Message) -> dict[str, Any]:
    result: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": call_id(message.tool_call_id or ""),
        "content": _result_content(message.content),
    }
    return {**result, "is_error": True} if message.is_error else result


def _result_content(content: Content) -> str | list[dict[str, Any]]:
    """Give text as it is, and a list of blocks where there is more than text."""
    if isinstance(content, list):
        blocks = [block for part in read_parts(content) for block in _part(part)]
        if any(block["type"] != "text" for block in blocks):
            return blocks
        return "\n".join(block["text"] for block in blocks)
    return text_of(content)


def _assistant(message: Message) -> Iterator[dict[str, Any]]:
    """Give reasoning where it stood in the text, then the calls; reasoning without a signature is refused."""
    text, place = text_of(message.content), 0
    for block in blocks_of(message):
        signature = block.get("signature")
        if not signature:
            continue
        after = min(int(block.get("after") or 0), len(text))
        if before := text[place:after]:
            yield {"type": "text", "text": before}
        place = max(place, after)
        if str(signature).startswith(REDACTED):
            yield {"type": "redacted_thinking", "data": str(signature).removeprefix(REDACTED)}
        else:
            yield {"type": "thinking", "thinking": str(block.get("text") or ""), "signature": signature}
    if (rest := text[place:]) and rest.strip():
        yield {"type": "text", "text": rest}
    for call in message.tool_calls:
        yield {"type": "tool_use", "id": call_id(call.id), "name": call.name, "input": dict(call.arguments)}


def call_id(ours: str) -> str:
    """Give the id that the server takes for a call; the same one for the same call, every time."""
    if _ID.fullmatch(ours):
        return ours
    return "toolu_" + hashlib.sha256(ours.encode("utf-8", "replace")).hexdigest()[:24]
