"""Reads recorded bytes the way the HTTP module does, so that a dialect is tested without a socket."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

from app.domain.errors import ProviderError
from app.providers.base import ProviderEvent, TextPiece
from app.providers.dialect import Decoder
from app.providers.sse import SseSplitter
from app.providers.wire import is_whole

BOUND: Final = 30.0
Outcome = tuple[list[ProviderEvent], ProviderError | None]


def read(decoder: Decoder, *pieces: bytes) -> Outcome:
    """Feed the pieces and the end; give the events and the error that ended them, if one did."""
    splitter = SseSplitter()
    events: list[ProviderEvent] = []
    try:
        for piece in pieces:
            for event, data in splitter.feed(piece):
                events += decoder.feed(event, data)
        for event, data in splitter.end():
            if is_whole(data):
                events += decoder.feed(event, data)
        events += decoder.end()
    except ProviderError as error:
        return events, error
    return events, None


def text_of(events: Sequence[ProviderEvent]) -> str:
    """Join the text of the events."""
    return "".join(event.text for event in events if isinstance(event, TextPiece))


def stream(*documents: Any, done: bool = True) -> bytes:
    """Write documents as a stream of events; strings are sent as data as they are."""
    lines = [document if isinstance(document, str) else json.dumps(document) for document in documents]
    if done:
        lines.append("[DONE]")
    return b"".join(f"data: {line}\n\n".encode() for line in lines)


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """Make a chunk of Chat Completions with one choice; `more` goes beside the choices."""
    return {"id": "c1", "model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def tool_delta(**entry: Any) -> dict[str, Any]:
    """Make a chunk with one entry of `tool_calls`; name and arguments go where they belong."""
    function = {name: entry.pop(name) for name in ("name", "arguments") if name in entry}
    return chunk({"tool_calls": [{**entry, "function": function}]})


async def outcome(events: AsyncGenerator[ProviderEvent, None]) -> Outcome:
    """Read a stream to its end within the bound; give its events and the error that ended it, if one did."""
    given: list[ProviderEvent] = []
    try:
        async with asyncio.timeout(BOUND), aclosing(events) as reading:
            async for event in reading:
                given.append(event)  # noqa: PERF401 - what came before the error is given too
    except ProviderError as error:
        return given, error
    return given, None


async def collect(events: AsyncGenerator[ProviderEvent, None]) -> list[ProviderEvent]:
    """Read a stream that has to end well."""
    given, error = await outcome(events)
    if error is not None:
        raise error
    return given


async def failing(events: AsyncGenerator[ProviderEvent, None]) -> tuple[list[ProviderEvent], ProviderError]:
    """Read a stream that has to fail; give what came before the error."""
    given, error = await outcome(events)
    assert error is not None, "the stream ended well"
    return given, error
