"""Documents and bytes of Anthropic Messages."""

import json
from typing import Any


def wire(*documents: Any, names: bool = True) -> bytes:
    lines = []
    for document in documents:
        name = f"event: {document['type']}\n" if names and isinstance(document, dict) else ""
        data = document if isinstance(document, str) else json.dumps(document)
        lines.append(f"{name}data: {data}\n\n")
    return "".join(lines).encode()


def start(**usage: int) -> dict[str, Any]:
    return {"type": "message_start", "message": {"model": "claude-x", "usage": usage or {"input_tokens": 9}}}


def block(index: int, **content: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": content}


def delta(index: int, kind: str, **content: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **content}}


def stopped(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def ending(reason: str | None, **usage: int) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
