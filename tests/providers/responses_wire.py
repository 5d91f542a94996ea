"""Documents and bytes of OpenAI Responses."""

import json
from typing import Any, Final

USAGE: Final[dict[str, Any]] = {
    "input_tokens": 10,
    "output_tokens": 6,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens_details": {"reasoning_tokens": 2},
}


def wire(*documents: Any) -> bytes:
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (document["type"].encode(), json.dumps(document).encode())
        for document in documents
    )


def said(text: str, place: int = 0) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "output_index": place, "delta": text}


def item(place: int, **content: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": place, "item": content}


def added(place: int, **content: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": place, "item": content}


def completed(kind: str = "completed", **response: Any) -> dict[str, Any]:
    told = {"status": kind, "model": "gpt-x", "usage": USAGE, **response}
    return {"type": f"response.{kind}", "response": told}
