"""The body of a Chat Completions request."""

import hashlib
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.domain.messages import Message, ToolCall, text_of
from app.domain.tools import ToolSpec
from app.providers.base import ModelRequest
from app.providers.compat import ChatCompat
from app.providers.parts import AudioPart, FilePart, ImagePart, Part, TextPart, not_shown, read_parts
from app.providers.reasoning import text_of_blocks
from app.providers.wire import dumps_text

_ID_SIGNS: Final = string.ascii_letters + string.digits
_ID_LENGTH: Final = 9
_OURS: Final = frozenset({"messages", "stream"})


def chat_body(request: ModelRequest, compat: ChatCompat) -> dict[str, Any]:
    """Give the document to send; what is not set is left out, so the server's defaults hold."""
    body: dict[str, Any] = {
        "model": request.model,
        "messages": list(_messages(request.messages, compat)),
        "stream": True,
    }
    if compat.include_usage:
        body["stream_options"] = {"include_usage": True}
    body.update(_options(request, compat))
    body.update(_tools(request, compat))
    body.update((name, value) for name, value in request.extra_body.items() if name not in _OURS)
    return body


def _messages(messages: Sequence[Message], compat: ChatCompat) -> Iterator[dict[str, Any]]:
    """Give the messages; what tools gave besides text follows their round as a user's message, if the server allows."""
    behind: list[dict[str, Any]] = []
    for message in messages:
        if behind and message.role != "tool":
            yield {"role": "user", "content": behind}
            behind = []
        if message.role == "tool":
            sent, parts = _result(message, compat)
            behind += parts
            yield sent
        elif (other := _message(message, compat)) is not None:
            yield other
    if behind:
        yield {"role": "user", "content": behind}


def _result(message: Message, compat: ChatCompat) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Give a tool's message, which takes text alone, and the parts that go into a message of their own."""
    texts: list[str] = []
    parts: list[dict[str, Any]] = []
    for part in read_parts(message.content) if isinstance(message.content, list) else ():
        sent = _part(part)
        if sent["type"] == "text":
            texts.append(sent["text"])
        elif compat.media_after_tools:
            texts.append("[This part of the result is in the next message.]")
            parts.append(sent)
        else:
            texts.append(not_shown(part))
    if parts:
        parts.insert(0, {"type": "text", "text": f"Parts of the result of {message.name or 'the tool'}:"})
    content = "\n".join(texts) if isinstance(message.content, list) else text_of(message.content)
    return {"role": "tool", "tool_call_id": call_id(message.tool_call_id or "", compat), "content": content}, parts


def _options(request: ModelRequest, compat: ChatCompat) -> dict[str, Any]:
    options = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        compat.max_tokens_field: request.max_tokens,
        "reasoning_effort": request.reasoning_effort,
        "response_format": None if request.response_format is None else dict(request.response_format),
        "user": request.user if compat.user_field else None,
        "prompt_cache_key": request.cache_key if compat.cache_key_field else None,
    }
    return {name: value for name, value in options.items() if value is not None}


def _tools(request: ModelRequest, compat: ChatCompat) -> dict[str, Any]:
    if not request.tools or (request.tool_choice == "none" and not compat.tool_choice):
        return {}
    tools: dict[str, Any] = {"tools": [_tool(spec) for spec in request.tools]}
    if request.tool_choice != "auto" and compat.tool_choice:
        tools["tool_choice"] = request.tool_choice
    return tools


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": spec.name, "description": spec.description, "parameters": dict(spec.input_schema)},
    }


def _message(message: Message, compat: ChatCompat) -> dict[str, Any] | None:
    match message.role:
        case "system" | "summary":
            return {"role": compat.system_role, "content": text_of(message.content)}
        case "user":
            return _user(message)
        case "assistant":
            return _assistant(message, compat)
        case "tool" | "error" | "thought":
            return None


def _user(message: Message) -> dict[str, Any]:
    if not isinstance(message.content, list):
        return {"role": "user", "content": message.content or ""}
    return {"role": "user", "content": [_part(part) for part in read_parts(message.content)]}


def _part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ImagePart(detail=detail):
            image: dict[str, Any] = {"url": part.as_url()}
            if detail is not None:
                image["detail"] = detail
            return {"type": "image_url", "image_url": image}
        case AudioPart(data):
            return {"type": "input_audio", "input_audio": {"data": data, "format": part.format}}
        case FilePart(name=name):
            if part.is_pdf:
                return {"type": "file", "file": {"filename": name or "file.pdf", "file_data": part.as_url()}}
            return {"type": "text", "text": part.text() or not_shown(part)}


def _assistant(message: Message, compat: ChatCompat) -> dict[str, Any] | None:
    text = text_of(message.content)
    if not text and not message.tool_calls:
        return None
    sent: dict[str, Any] = {"role": "assistant", "content": text or ("" if compat.content_required else None)}
    if message.tool_calls:
        sent["tool_calls"] = [_call(call, compat) for call in message.tool_calls]
        if compat.reasoning_replay and (reasoning := text_of_blocks(message)):
            sent[compat.reasoning_replay] = reasoning
    return sent


def _call(call: ToolCall, compat: ChatCompat) -> dict[str, Any]:
    # The text of an invalid call is never sent: servers that parse it refuse the whole history for ever.
    sent: dict[str, Any] = {
        "id": call_id(call.id, compat),
        "type": "function",
        "function": {"name": call.name, "arguments": dumps_text(dict(call.arguments))},
    }
    extra: Mapping[str, Any] = call.extra or {}
    if compat.replay_extra_content and "extra_content" in extra:
        sent["extra_content"] = extra["extra_content"]
    return sent


def call_id(ours: str, compat: ChatCompat) -> str:
    """Give the id that the server takes for a call; the same one for the same call, every time."""
    if compat.call_id == "any" or (len(ours) == _ID_LENGTH and ours.isascii() and ours.isalnum()):
        return ours
    number = int.from_bytes(hashlib.sha256(ours.encode("utf-8", "replace")).digest())
    signs = []
    for _ in range(_ID_LENGTH):
        number, place = divmod(number, len(_ID_SIGNS))
        signs.append(_ID_SIGNS[place])
    return "".join(signs)
