"""The body of a Gemini `generateContent` request.

Turns alternate between user and model; the results of a tool round are parts of a user turn, and name the function.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.domain.messages import Content, Message, ToolCall, text_of
from app.domain.turn import Effort
from app.providers.base import ModelRequest
from app.providers.parts import AudioPart, FilePart, ImagePart, Part, TextPart, not_shown, read_parts
from app.providers.wire import loads

_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_IMAGE_TYPES: Final = {"jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}
_OURS: Final = frozenset({"contents"})
_THIRD: Final = re.compile(r"gemini-(?:[3-9]|[1-9]\d|[a-z-]+-latest)")
"""Models from the third generation on: they check signatures, take media in results, and think by levels."""

NO_SIGNATURE: Final = "skip_thought_signature_validator"
"""What stands in for the signature of a call that another model made; the provider names this word for that case."""

EXTRA: Final = "gemini"
"""Key in a call's `extra`: `{"signature"?, "id"?}` as the provider gave them."""


_THOUGHTS: Final[dict[str, int]] = {"none": 0, "minimal": 512, "low": 2048, "medium": 8192, "high": 24_576}
"""Tokens to think with, by effort."""


def gemini_body(request: ModelRequest) -> dict[str, Any]:
    """Give the document to send; what is not set is left out. `generationConfig` of the extra body is merged in."""
    body: dict[str, Any] = {"contents": _contents(request)}
    system = [message for message in request.messages if message.role in {"system", "summary"}]
    if texts := [text for message in system if (text := text_of(message.content))]:
        body["systemInstruction"] = {"parts": [{"text": text} for text in texts]}
    if request.tools:
        body["tools"] = [
            {
                "functionDeclarations": [
                    {
                        "name": spec.name,
                        "description": spec.description,
                        "parametersJsonSchema": dict(spec.input_schema),
                    }
                    for spec in request.tools
                ]
            }
        ]
        if request.tool_choice != "auto":
            body["toolConfig"] = {"functionCallingConfig": {"mode": _MODES[request.tool_choice]}}
    if config := _config(request):
        body["generationConfig"] = config
    for name, value in request.extra_body.items():
        if name == "generationConfig" and isinstance(value, Mapping):
            body[name] = {**body.get(name, {}), **value}
        elif name not in _OURS:
            body[name] = value
    return body


def _config(request: ModelRequest) -> dict[str, Any]:
    config: dict[str, Any] = {
        "temperature": request.temperature,
        "topP": request.top_p,
        "maxOutputTokens": request.max_tokens,
    }
    if request.reasoning_effort is not None:
        config["thinkingConfig"] = _thinking(request.model, request.reasoning_effort)
    wanted = request.response_format or {}
    if wanted.get("type") in {"json_object", "json_schema"}:
        config["responseMimeType"] = "application/json"
    if wanted.get("type") == "json_schema":
        config["responseJsonSchema"] = (wanted.get("json_schema") or wanted).get("schema")
    return {name: value for name, value in config.items() if value is not None}


def _thinking(model: str, effort: Effort) -> dict[str, Any]:
    """Say how much to think. From the third generation on, `low` is the least that every model takes."""
    if _THIRD.match(model) is None:
        return {"thinkingBudget": _THOUGHTS[effort]}
    return {"thinkingLevel": "low" if effort in {"none", "minimal"} else effort}


def _contents(request: ModelRequest) -> list[dict[str, Any]]:
    signed = _THIRD.match(request.model) is not None
    calls = {call.id: call for message in request.messages for call in message.tool_calls}
    contents: list[dict[str, Any]] = []
    for message in request.messages:
        parts = list(_parts(message, calls, signed=signed))
        role = "model" if message.role == "assistant" else "user"
        if not parts:
            continue
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"].extend(parts)
        else:
            contents.append({"role": role, "parts": parts})
    return contents


def _parts(message: Message, calls: Mapping[str, ToolCall], *, signed: bool) -> Iterator[dict[str, Any]]:
    match message.role:
        case "user":
            yield from _user(message)
        case "assistant":
            if text := text_of(message.content):
                yield {"text": text}
            for place, call in enumerate(message.tool_calls):
                yield _call(call, signed=signed and place == 0)
        case "tool":
            yield _result(message, calls.get(message.tool_call_id or ""), media=signed)
        case "system" | "summary" | "error" | "thought":
            return


def _call(call: ToolCall, *, signed: bool) -> dict[str, Any]:
    """Give a call; the first one of a round needs a signature where the model checks them."""
    own = (call.extra or {}).get(EXTRA) or {}
    function: dict[str, Any] = {"name": call.name, "args": dict(call.arguments)}
    if "id" in own:
        function["id"] = own["id"]
    part: dict[str, Any] = {"functionCall": function}
    if signature := own.get("signature") or (NO_SIGNATURE if signed else None):
        part["thoughtSignature"] = signature
    return part


def _result(message: Message, call: ToolCall | None, *, media: bool) -> dict[str, Any]:
    """Give a result; with `media` (models from Gemini 3 on) images and documents are parts of it."""
    text, parts = _result_content(message.content, media=media)
    try:
        value = loads(text.encode("utf-8", "replace"))
    except ValueError:
        value = text
    response = {"error": value} if message.is_error else value if isinstance(value, dict) else {"result": value}
    result: dict[str, Any] = {"name": call.name if call else message.name or "unknown", "response": response}
    if parts:
        result["parts"] = parts
    own = (call.extra or {}).get(EXTRA) or {} if call else {}
    return {"functionResponse": {**result, "id": own["id"]} if "id" in own else result}


def _result_content(content: Content, *, media: bool) -> tuple[str, list[dict[str, Any]]]:
    if not isinstance(content, list):
        return text_of(content), []
    texts: list[str] = []
    parts: list[dict[str, Any]] = []
    for part in read_parts(content):
        sent = _part(part)
        if "text" in sent:
            texts.append(sent["text"])
        elif media and "inlineData" in sent and not isinstance(part, AudioPart):
            parts.append(sent)
        else:
            texts.append(not_shown(part))
    return "\n".join(texts), parts


def _user(message: Message) -> Iterator[dict[str, Any]]:
    if not isinstance(message.content, list):
        if message.content:
            yield {"text": message.content}
        return
    yield from (sent for part in read_parts(message.content) if (sent := _part(part)) != {"text": ""})


def _part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"text": text}
        case ImagePart():
            return _image(part)
        case AudioPart(data, mime_type):
            return {"inlineData": {"mimeType": mime_type, "data": data}}
        case FilePart(data, mime_type):
            if part.is_pdf:
                return {"inlineData": {"mimeType": mime_type, "data": data}}
            return {"text": part.text() or not_shown(part)}


def _image(image: ImagePart) -> dict[str, Any]:
    if (inline := image.inline()) is not None:
        return {"inlineData": {"mimeType": inline[0], "data": inline[1]}}
    ending = (image.url or "").partition("?")[0].rpartition(".")[2].lower()
    return {"fileData": {"fileUri": image.url, "mimeType": _IMAGE_TYPES.get(ending, image.mime_type)}}
