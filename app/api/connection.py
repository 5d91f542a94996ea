"""A connection of a client, where the server's own would fail it.

Who is still being answered learns that the connection is lost, whatever else has come in by it: the server tells only
the newest request. A client that offers another protocol, as Java's own does with its first request, is answered in the
one that it speaks, with its body read. One that speaks HTTP/1.0 gets no chunks, which it can't read. And a head has a
limit, since it is held before anybody knows whose it is, as have requests that are sent before the answer to another; a
client that says nothing, or stops in the middle of a request, is waited for as long as an idle one. And what thousands
of connections hold for as long as their readers stay has no queues that are empty: each of them takes 0.7 KiB.
"""

import asyncio
from typing import Any, Final

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_OF_AN_OFFER: Final = frozenset({b"upgrade", b"http2-settings"})
_INVALID: Final = b"This is no request of HTTP/1.1; the connection is closed."
_TOO_MANY: Final = b"More than 100 requests wait for their answers on this connection; wait for some, or open another."
_TOO_LARGE: Final = b"The head of the request is larger than 64 KiB; send less."
_TOO_SLOW: Final = b"The rest of the request did not come; send it again as a whole."
_BYTES: Final = 64 << 10
"""So much may come of a head, or of the trailers of a body, before the next part of the request."""

_MOST: Final = 100
"""So many requests may be sent before they are answered: each of a few bytes is held as some thousand."""


class TooManyError(Exception):
    """More requests wait than may."""


class Connection(HttpToolsProtocol):
    """Speaks HTTP/1.1 with one client.

    What it has beside the server's own has slots: together they are more than Python keeps without a table of each.
    """

    __slots__ = ("_asked", "_moved", "_offers", "_partial", "_unmoved")

    def __init__(self, *args: Any, **named: Any) -> None:
        """Take what the server gives."""
        super().__init__(*args, **named)
        self.pipeline = _Queue()  # type: ignore[assignment]
        self._asked: list[RequestResponseCycle] = []
        self._offers = False
        self._moved = False
        self._unmoved = 0
        self._partial = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take bytes. A request that offers another protocol is read once more, without the offer."""
        self._unset_keepalive_if_required()
        self._moved = False
        size = len(data)
        while True:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as error:
                if self._offers:
                    data = self._without_offer() + data[error.args[0] :]
                    continue
                self._refuse(b"400 Bad Request", _INVALID)
            except httptools.HttpParserError as error:
                many = isinstance(error.__context__, TooManyError)
                self._refuse(b"400 Bad Request", _TOO_MANY if many else _INVALID)
            break
        self._unmoved = 0 if self._moved else self._unmoved + size
        if self._unmoved > _BYTES:
            self._refuse(b"431 Request Header Fields Too Large", _TOO_LARGE)
        elif self._partial and self._owes_nothing:
            self._wait()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection on which nothing has come for too long."""
        if not self._partial:
            super().timeout_keep_alive_handler()
        elif self._owes_nothing and not self.transport.is_closing():
            self._refuse(b"408 Request Timeout", _TOO_SLOW)

    def on_message_begin(self) -> None:
        """Begin with another request."""
        self._moved = self._partial = True
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        """Take some of a body, which has a limit of its own."""
        self._moved = True
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """Note the request, and forget those that have been answered."""
        self._moved = True
        self._offers = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if self._offers:
            return
        while self._asked and self._asked[0].response_complete:
            del self._asked[0]  # they are answered in their order
        if len(self._asked) > _MOST:
            raise TooManyError
        super().on_headers_complete()
        self.cycle.message_event = _Event()  # nobody has begun to wait for it
        if self.scope["http_version"] == "1.0":
            self.cycle.send = _Unchunked(self.cycle)  # type: ignore[method-assign]
        self._asked.append(self.cycle)

    def on_message_complete(self) -> None:
        """Note that the request is whole, unless it is to be read once more."""
        self._moved, self._partial = True, False
        if not self._offers:
            super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell all who have not been answered."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        for request in self._asked:
            if not request.response_complete:
                request.disconnected = True
                request.message_event.set()
        self._asked = []

    @property
    def _owes_nothing(self) -> bool:
        """Whether no answer has begun, or is due, that is not whole yet."""
        return all(one.response_complete or (one.more_body and not one.response_started) for one in self._asked)

    def _wait(self) -> None:
        """Wait for what comes next as long as an idle connection is kept."""
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _refuse(self, status: bytes, why: bytes) -> None:
        """Read no further, and say why where no other answer has begun."""
        self.logger.warning(why.decode())
        if not any(one.response_started and not one.response_complete for one in self._asked):
            told = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close" % len(why)
            self.transport.write(b"HTTP/1.1 %b\r\n%b\r\n\r\n%b" % (status, told, why))
        self.transport.close()

    def _without_offer(self) -> bytes:
        """Give the head of the request as if it offered nothing, and read what comes next from its beginning."""
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            kept = value
            if name == b"connection":
                kept = b", ".join(one for one in value.split(b",") if one.strip().lower() not in _OF_AN_OFFER)
            if name not in _OF_AN_OFFER:
                lines.append(b"%b: %b" % (name, kept))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as the server has it
        return b"\r\n".join((*lines, b"", b""))


class _Event(asyncio.Event):
    """An event that keeps those who wait for it in a list: who waits is one task, or none."""

    def __init__(self) -> None:
        super().__init__()
        self._waiters = []  # type: ignore[assignment]


class _Flow(FlowControl):
    """Tells when more may be written."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_writable_event = _Event()
        self._is_writable_event.set()


class _Queue(list[tuple[RequestResponseCycle, ASGI3Application]]):
    """Requests that wait for the answer to another."""

    __slots__ = ()

    def appendleft(self, one: tuple[RequestResponseCycle, ASGI3Application]) -> None:
        self.insert(0, one)


class _Unchunked:
    """Sends a response to HTTP/1.0: what tells no length ends with the connection."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._send = cycle.send
        self._endless = False

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._endless = not any(name.lower() == b"content-length" for name, _ in message["headers"])
            if self._endless:
                self._cycle.chunked_encoding = False
        elif self._endless:
            self._cycle.expected_content_length = len(message.get("body", b""))
        await self._send(message)
