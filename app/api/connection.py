"""A connection of a client: who is still being answered learns that it is lost, whatever else has come in by it.

The server tells only the newest request of a connection. A client that sends another one behind a response that lasts
would hold its reader, and what runs for it, long after it has gone.
"""

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle


class Connection(HttpToolsProtocol):
    """Speaks HTTP/1.1 with one client."""

    def __init__(self, *args: Any, **named: Any) -> None:
        """Take what the server gives."""
        super().__init__(*args, **named)
        self._asked: list[RequestResponseCycle] = []

    def on_headers_complete(self) -> None:
        """Note the request, and forget those that have been answered."""
        super().on_headers_complete()
        self._asked = [*(request for request in self._asked if not request.response_complete), self.cycle]

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell all who have not been answered."""
        super().connection_lost(exc)
        for request in self._asked:
            if not request.response_complete:
                request.disconnected = True
                request.message_event.set()
        self._asked = []
