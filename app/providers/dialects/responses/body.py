"""The body of an OpenAI Responses request: a flat list of items, nothing kept at the provider."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.domain.messages import Content, Message, text_of
from app.providers.base import ModelRequest
from app.providers.parts import AudioPart, FilePart, ImagePart, Part, TextPart, not_shown, read_parts
from app.providers.reasoning import blocks_of
from app.providers.wire import dumps_text, loads

_OURS: Final = frozenset({"input", "stream", "store"})
ITEM: Final = "item:"
"""What a kept signature begins with: the JSON of a whole reasoning item follows, which goes back unchanged."""


def responses_body(request: ModelRequest) -> dict[str, Any]:
    """Give the document to send; what is not set is left out."""
    body: dict[str, Any] = {
        "model": request.model,
        "input": [item for message in request.messages for item in _items(message)],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    options = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_output_tokens": request.max_tokens,
        "user": request.user,
        "prompt_cache_key": request.cache_key,
        "text": _text(request.response_format),
        "reasoning": None if request.reasoning_effort is None else {"effort": request.reasoning_effort},
    }
    body.update((name, value) for name, value in options.items() if value is not None)
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": spec.name,
                "description": spec.description,
                "parameters": dict(spec.input_schema),
                "strict": False,
            }
            for spec in request.tools
        ]
        if request.tool_choice != "auto":
            body["tool_choice"] = request.tool_choice
    body.update((name, value) for name, value in request.extra_body.items() if name not in _OURS)
    return body


def _text(wanted: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Flatten the form that Chat Completions has for structured output."""
    if wanted is None:
        return None
    nested = wanted.get("json_schema")
    if isinstance(nested, Mapping):
        return {"format": {"type": "json_schema", **nested}}
    return {"format": dict(wanted)}


def _items(message: Message) -> Iterator[dict[str, Any]]:
    match message.role:
        case "system" | "summary":
            yield {"role": "system", "content": text_of(message.content)}
        case "user":
            yield {"role": "user", "content": _content(message)}
        case "assistant":
            yield from _assistant(message)
        case "tool":
            yield {
                "type": "function_call_output",
                "call_id": message.tool_call_id,
                "output": _output(message.content),
            }
        case "error" | "thought":
            return


def _assistant(message: Message) -> Iterator[dict[str, Any]]:
    """Give whole reasoning items first, as the provider did; a bare reference to one would be unknown to it."""
    for block in blocks_of(message):
        signature = str(block.get("signature") or "")
        if signature.startswith(ITEM):
            yield loads(signature.removeprefix(ITEM).encode())
    if text := text_of(message.content):
        yield {"role": "assistant", "content": text}
    for call in message.tool_calls:
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": dumps_text(dict(call.arguments)),
        }


def _content(message: Message) -> str | list[dict[str, Any]]:
    if not isinstance(message.content, list):
        return message.content or ""
    return [_part(part) for part in read_parts(message.content)]


def _output(content: Content) -> str | list[dict[str, Any]]:
    """Give a result: text as it is, and a list of items where there is more than text; sound can only be told of."""
    if not isinstance(content, list):
        return text_of(content)
    items = [
        {"type": "input_text", "text": not_shown(part)} if isinstance(part, AudioPart) else _part(part)
        for part in read_parts(content)
    ]
    if any(item["type"] != "input_text" for item in items):
        return items
    return "\n".join(item["text"] for item in items)


def _part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"type": "input_text", "text": text}
        case ImagePart(detail=detail):
            return {"type": "input_image", "image_url": part.as_url(), "detail": detail or "auto"}
        case AudioPart(data):
            return {"type": "input_audio", "input_audio": {"data": data, "format": part.format}}
        case FilePart(name=name):
            if part.is_pdf:
                return {"type": "input_file", "filename": name or "file.pdf", "file_data": part.as_url()}
            return {"type": "input_text", "text": part.text() or not_shown(part)}
