"""Responses that last: an operation's frames as Server-Sent Events, or its end as one object.

Frames come as bytes and go out as they come. A response that can't be finished raises out of the application after
its first byte, on which the server drops the connection: a clean end would be taken for success.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
import structlog
from sse_starlette import EventSourceResponse

from app.domain.errors import AppError
from app.domain.jsontext import dumps
from app.streaming.tail import CutError

SSE_HEADERS: Final = {"Content-Type": "text/event-stream; charset=utf-8"}
OBJECT_HEADERS: Final = {"Content-Type": "application/json"}


class CutResponseError(Exception):
    """A response ended before its end. It leaves the application, so that the server drops the connection."""


class FrameResponse(EventSourceResponse):
    """Sends frames until their iterator ends; heartbeats are the iterator's business.

    A client that goes away closes the iterator. On SIGTERM a reader may go on for `grace` seconds, then it is cut.
    """

    def __init__(self, frames: AsyncIterator[bytes], *, headers: Mapping[str, str], grace: float) -> None:
        """Prepare to send; nothing is read before the response is asked for."""
        super().__init__(
            _cut_on_failure(frames),
            headers={**SSE_HEADERS, **headers},
            ping=0,
            sep="\n",
            shutdown_event=anyio.Event(),
            shutdown_grace_period=grace,
        )


class ObjectResponse(FrameResponse):
    """Waits for an operation's end, then sends one JSON object; a space goes out for every heartbeat."""

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        result: Callable[[], Awaitable[Mapping[str, Any]]],
        *,
        headers: Mapping[str, str],
        grace: float,
    ) -> None:
        """Prepare to wait; `result` gives the object once the frames have ended."""
        super().__init__(_object_after(frames, result), headers={**OBJECT_HEADERS, **headers}, grace=grace)


async def _cut_on_failure(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Give the pieces, and close their iterator whatever ends the reading; a failure of theirs cuts the response."""
    try:
        async for piece in pieces:
            yield piece
    except Exception as error:
        expected = isinstance(error, AppError | CutError)
        structlog.get_logger(__name__).warning("response.cut", cause=str(error), exc_info=not expected)
        raise CutResponseError from error
    finally:
        await _close(pieces)


async def _object_after(
    frames: AsyncIterator[bytes], result: Callable[[], Awaitable[Mapping[str, Any]]]
) -> AsyncIterator[bytes]:
    try:
        async for piece in frames:
            if piece.startswith(b":"):
                yield b" "
    finally:
        await _close(frames)
    yield dumps(await result())


async def _close(pieces: AsyncIterator[bytes]) -> None:
    close = getattr(pieces, "aclose", None)
    if close is not None:
        await close()
