"""Responses that last: an operation's frames as Server-Sent Events, or its end as one object.

Frames come as bytes and go out as they come. A response that can't be finished raises out of the application after
its first byte, on which the server drops the connection: a clean end would be taken for success.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import closing, suppress
from typing import Any, Final

import structlog
from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from app.api.readers import Slot
from app.domain.errors import AppError, DatabaseError
from app.domain.frozen import dataclass
from app.domain.jsontext import dumps
from app.domain.patience import Patience
from app.streaming.outlet import Reader, Sending
from app.streaming.tail import CutError

SSE_HEADERS: Final = {"Content-Type": "text/event-stream; charset=utf-8"}
OBJECT_HEADERS: Final = {"Content-Type": "application/json"}
END_MARK: Final = b"\nevent: end\n"
RETRY_SECONDS: Final = 0.5
_TAKES_NOTHING: Final = "the reader takes nothing"

Result = Callable[[], Awaitable[Mapping[str, Any]]]


class CutResponseError(Exception):
    """A response ended before its end. It leaves the application, so that the server drops the connection."""


@dataclass(slots=True)
class ReaderTerms:
    """What belongs to one reader: its slot, how long it may take nothing, and what to do if it goes before the end."""

    slot: Slot | None = None
    blocked_seconds: float | None = None
    when_gone: Callable[[], None] | None = None


class FrameResponse(EventSourceResponse):
    """Sends frames until their iterator ends; heartbeats are the iterator's business.

    A client that goes away closes the iterator, and so does one that takes nothing for too long. The library's own
    tasks for a ping, the client and the shutdown are a third of what an idle reader holds. Here the request's task
    sends and one more watches the client; who still reads at the end of a drain is cut by the frames' own iterator.
    """

    def __init__(self, frames: AsyncIterator[bytes], *, headers: Mapping[str, str], terms: ReaderTerms) -> None:
        """Prepare to send; nothing is read before the response is asked for."""
        self._frames = frames
        self._terms = terms
        self._ended = False
        self._gone = False
        super().__init__(
            frames,
            headers={**SSE_HEADERS, **headers},
            ping=0,
            sep="\n",
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI has it
        """See ASGI. Whatever ends the response, its iterator is closed and its slot given back."""
        try:
            await self._until_gone(receive, send)
        finally:
            await _close(self._frames)
            if self._terms.slot is not None:
                self._terms.slot.release()
            if self._gone and not self._ended and self._terms.when_gone is not None:
                self._terms.when_gone()

    async def _until_gone(self, receive: Receive, send: Send) -> None:
        """Send all, or as much as there is when the client goes away."""
        sending = asyncio.current_task()
        if sending is None:
            raise RuntimeError
        before = sending.cancelling()

        def stop(_: object) -> None:
            self._gone = True
            sending.cancel()

        watching = asyncio.create_task(_disconnected(receive), name="watch of a client")
        watching.add_done_callback(stop)
        try:
            await self._stream_response(send)
        except asyncio.CancelledError:
            if not watching.done() or sending.uncancel() > before:
                raise
        finally:
            watching.remove_done_callback(stop)
            watching.cancel()

    async def _stream_response(self, send: Send) -> None:
        """Send the pieces as they are, in place of the library's way, which takes each for an object to be encoded."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        now, blocked = asyncio.get_running_loop().time, self._terms.blocked_seconds or math.inf
        try:
            with closing(Patience()) as patience:
                async for piece in self._pieces(lambda piece: send(_body(piece))):
                    self._ended = self._ended or END_MARK in piece
                    try:
                        with patience.until(now() + blocked):
                            await (send(_body(piece)) if piece else self._finish())
                    except TimeoutError as error:
                        self._gone = True
                        raise CutError(_TAKES_NOTHING) from error
        except Exception as error:
            expected = isinstance(error, AppError | CutError)
            structlog.get_logger(__name__).warning("response.cut", cause=str(error), exc_info=not expected)
            raise CutResponseError from error
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _pieces(self, sending: Sending) -> AsyncIterator[bytes]:
        """Give what is to be sent, but for what the outlet sends by itself; a failure of it cuts the response."""
        if isinstance(self._frames, Reader):
            self._frames.outlet.open(sending)
        return self._frames

    async def _finish(self) -> None:
        """Send the rest of what the outlet has begun."""
        if isinstance(self._frames, Reader):
            await self._frames.outlet.finish()


class ObjectResponse(FrameResponse):
    """Waits for an operation's end, then sends one JSON object; a space goes out for every heartbeat."""

    def __init__(
        self, frames: AsyncIterator[bytes], result: Result, *, headers: Mapping[str, str], terms: ReaderTerms
    ) -> None:
        """Prepare to wait; `result` gives the object once the frames have ended."""
        self._result = result
        super().__init__(frames, headers={**OBJECT_HEADERS, **headers}, terms=terms)

    async def _pieces(self, sending: Sending) -> AsyncIterator[bytes]:
        del sending
        async for piece in self._frames:
            self._ended = self._ended or END_MARK in piece
            if piece.startswith(b":"):
                yield b" "
        while True:
            with suppress(DatabaseError):
                yield dumps(await self._result())
                return
            yield b" "
            await asyncio.sleep(RETRY_SECONDS)


def _body(piece: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": piece, "more_body": True}


async def nothing() -> AsyncIterator[bytes]:
    """Give no frame at all."""
    none: tuple[bytes, ...] = ()
    for piece in none:
        yield piece


async def _disconnected(receive: Receive) -> None:
    """Wait until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _close(pieces: AsyncIterator[bytes]) -> None:
    close = getattr(pieces, "aclose", None)
    if close is not None:
        await close()
