"""Responses that last: an operation's frames as Server-Sent Events, or its end as one object.

Frames come as bytes and go out as they come. A response that can't be finished raises out of the application after
its first byte, on which the server drops the connection: a clean end would be taken for success.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send

from app.api.middleware import REST, CutResponseError, Entry
from app.api.readers import Slot
from app.domain.errors import AppError, DatabaseError
from app.domain.frozen import dataclass
from app.domain.jsontext import dumps
from app.observability.lines import log
from app.streaming.outlet import CutError, Outlet, Reader

SSE_HEADERS: Final = {"Content-Type": "text/event-stream; charset=utf-8"}
OBJECT_HEADERS: Final = {"Content-Type": "application/json"}
END_MARK: Final = b"\nevent: end\n"
RETRY_SECONDS: Final = 0.5
_TAKES_NOTHING: Final = "the reader takes nothing"

Result = Callable[[], Awaitable[Mapping[str, Any]]]


@dataclass(slots=True)
class ReaderTerms:
    """What belongs to one reader: its slot, how long it may take nothing, and what to do if it goes before the end."""

    slot: Slot | None = None
    blocked_seconds: float | None = None
    when_gone: Callable[[], None] | None = None


class FrameResponse(EventSourceResponse):
    """Begins a response of frames; the rest of it is sent when the layers around it are gone.

    Frames are sent until their iterator ends; heartbeats are the iterator's business. Headers are the library's, but
    for what becomes of the connection, which the server tells. The library's own tasks for a ping, the client and the
    shutdown would be a third of what an idle reader holds; who still reads at the end of a drain is cut by the frames'
    own iterator.
    """

    def __init__(self, frames: AsyncIterator[bytes], *, headers: Mapping[str, str], terms: ReaderTerms) -> None:
        """Prepare to send; nothing is read before the response is asked for."""
        self._begin(Frames(frames, terms), frames, {**SSE_HEADERS, **headers})

    def _begin(self, rest: "Frames", frames: AsyncIterator[bytes], headers: Mapping[str, str]) -> None:
        self._rest = rest
        super().__init__(frames, headers=headers, ping=0, sep="\n")
        del self.headers["Connection"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI has it
        """See ASGI. If the response can't begin, its slot is given back here."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        except BaseException:
            await self._rest.close()
            raise
        scope[REST] = self._rest


class ObjectResponse(FrameResponse):
    """Waits for an operation's end, then sends one JSON object; a space goes out for every heartbeat."""

    def __init__(
        self, frames: AsyncIterator[bytes], result: Result, *, headers: Mapping[str, str], terms: ReaderTerms
    ) -> None:
        """Prepare to wait; `result` gives the object once the frames have ended."""
        self._begin(Outcome(frames, terms, result), frames, {**OBJECT_HEADERS, **headers})


class Frames:
    """Sends frames as they come, in the request's own task; one more watches the client.

    A client that goes away closes the frames' iterator, and so does one that takes nothing for too long. What is left
    of the request's body is thrown away.
    """

    __slots__ = ("_ended", "_entry", "_frames", "_gone", "_send", "_sending", "_terms")

    def __init__(self, frames: AsyncIterator[bytes], terms: ReaderTerms) -> None:
        """Prepare to send."""
        self._frames = frames
        self._terms = terms
        self._ended = False
        self._gone = False
        self._sending: asyncio.Task[object] | None = None

    async def __call__(self, entry: Entry, receive: Receive, send: Send) -> None:
        """Send all, or as much as there is when the client goes away; whatever ends it, all is given back."""
        self._entry, self._send = entry, send
        self._sending = sending = asyncio.current_task()
        if sending is None:
            raise RuntimeError
        before = sending.cancelling()
        watching = asyncio.create_task(_disconnected(receive), name="watch of a client")
        watching.add_done_callback(self._stop)
        try:
            await self._send_all()
        except asyncio.CancelledError:
            if not watching.done() or sending.uncancel() > before:
                raise
        finally:
            watching.remove_done_callback(self._stop)
            watching.cancel()
            self._sending = None
            await self.close()

    async def close(self) -> None:
        """Close the frames, give the slot back, and tell when the client has gone before the end."""
        close = getattr(self._frames, "aclose", None)
        try:
            if close is not None:
                await close()
        finally:
            if self._terms.slot is not None:
                self._terms.slot.release()
            if self._gone and not self._ended and self._terms.when_gone is not None:
                self._terms.when_gone()

    def _stop(self, _: object) -> None:
        self._gone = True
        if self._sending is not None:
            self._sending.cancel()

    async def _send_all(self) -> None:
        """Send the pieces as they are; the library would take each for an object to be encoded."""
        outlet = self._outlet()
        outlet.open(self._put)
        try:
            async for piece in self._pieces():
                self._ended = self._ended or END_MARK in piece
                if not piece or not outlet.write(piece):
                    await self._finish(outlet)
                del piece  # it would be held while the next is waited for
            outlet.open(self._end)
            if not outlet.write(b""):
                await self._finish(outlet)
        except Exception as error:
            expected = isinstance(error, AppError | CutError)
            log(__name__).warning("response.cut", cause=str(error), exc_info=not expected)
            raise CutResponseError from error
        finally:
            outlet.shut()
        self._entry.whole = True

    def _put(self, piece: bytes) -> Awaitable[None]:
        self._entry.sent += len(piece)
        return self._send({"type": "http.response.body", "body": piece, "more_body": True})

    def _end(self, piece: bytes) -> Awaitable[None]:
        return self._send({"type": "http.response.body", "body": piece, "more_body": False})

    async def _finish(self, outlet: Outlet) -> None:
        """Wait until the client takes what was begun."""
        try:
            async with asyncio.timeout(self._terms.blocked_seconds):
                await outlet.finish()
        except TimeoutError as error:
            self._gone = True
            raise CutError(_TAKES_NOTHING) from error

    def _outlet(self) -> Outlet:
        """Give what pieces go out by: the reader's own, by which frames go out without waking it, too."""
        return self._frames.outlet if isinstance(self._frames, Reader) else Outlet()

    def _pieces(self) -> AsyncIterator[bytes]:
        """Give what is to be sent, but for what goes out by itself; a failure of it cuts the response."""
        return self._frames


class Outcome(Frames):
    """Sends one object when the frames have ended."""

    __slots__ = ("_result",)

    def __init__(self, frames: AsyncIterator[bytes], terms: ReaderTerms, result: Result) -> None:
        """Prepare to wait."""
        super().__init__(frames, terms)
        self._result = result

    def _outlet(self) -> Outlet:
        return Outlet()

    async def _pieces(self) -> AsyncIterator[bytes]:
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


async def nothing() -> AsyncIterator[bytes]:
    """Give no frame at all."""
    none: tuple[bytes, ...] = ()
    for piece in none:
        yield piece


async def _disconnected(receive: Receive) -> None:
    """Wait until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
