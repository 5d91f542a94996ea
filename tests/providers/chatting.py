"""Reads Chat Completions bytes with ids that a test can foresee."""

import itertools
from typing import Any

from app.domain.messages import ToolCall
from app.providers.base import CallsReady
from app.providers.compat import ChatCompat
from app.providers.dialects.chat.decoder import ChatDecoder
from tests.providers.reading import Outcome, read


def decode(*pieces: bytes, compat: ChatCompat | None = None) -> Outcome:
    numbers = itertools.count(1)
    decoder = ChatDecoder("openai", compat or ChatCompat(), new_id=lambda: f"made_{next(numbers)}")
    events, error = read(decoder, *pieces)
    if error is not None:
        error.usage = decoder.usage
    return events, error


def calls_of(outcome: Outcome) -> list[ToolCall]:
    return [call for event in outcome[0] if isinstance(event, CallsReady) for call in event.calls]


def usage(prompt: int, completion: int) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}}
