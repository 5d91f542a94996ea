"""What every request passes, in plain ASGI: its id, its log line, the limit of its body, the last net for failures."""

import re
import time
from dataclasses import field
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.problems import problem_response
from app.domain.errors import InternalError, TooLargeError
from app.domain.frozen import dataclass
from app.domain.ids import fresh
from app.observability.lines import bound, log

REQUEST_ID_HEADER: Final = "X-Request-Id"
REST: Final = "fermata.rest"
"""Where a response that lasts leaves the rest of itself in the scope, once it has begun; see `Lasting`."""

ENTRY: Final = "fermata.entry"
"""Where a request's `Entry` is in its scope."""

_SANE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_DEFAULTS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_PROBES: Final = frozenset({"/healthz", "/readyz"})


class CutResponseError(Exception):
    """A response ended before its end. It leaves the application, so that the server drops the connection."""


@dataclass(slots=True)
class Entry:
    """What the log tells of one request at its end."""

    method: str
    path: str
    request_id: str
    began: float = field(default_factory=time.perf_counter)
    status: int | None = None
    sent: int = 0
    whole: bool = False

    def tell(self) -> None:
        """Write the line."""
        lines = log(__name__)
        tell = lines.debug if self.path in _PROBES else lines.info
        tell(
            "request",
            method=self.method,
            path=self.path,
            status=self.status,
            milliseconds=round((time.perf_counter() - self.began) * 1000, 1),
            sent_bytes=self.sent,
            whole=self.whole,
        )


class Requests:
    """Names each request, logs one line when it ends, and answers 500 for what nothing else has caught."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
        request_id = given if _SANE_ID.fullmatch(given) else fresh("req")
        scope.setdefault("state", {})["request_id"] = request_id
        entry = scope[ENTRY] = Entry(scope["method"], scope["path"], request_id)
        with bound(request_id=request_id):
            await self._pass(entry, scope, receive, send)

    async def _pass(self, entry: Entry, scope: Scope, receive: Receive, send: Send) -> None:
        async def sender(message: Message) -> None:
            if message["type"] == "http.response.body":
                entry.sent += len(message.get("body", b""))
                entry.whole = not message.get("more_body", False)
            else:
                _begin(entry, message)
            await send(message)

        try:
            await self._app(scope, receive, sender)
        except Exception as error:
            if entry.status is not None:
                log(__name__).exception("request.failed_after_start")
                raise CutResponseError from error
            log(__name__).exception("request.failed")
            await problem_response(InternalError(), scope)(scope, receive, sender)
        finally:
            if REST not in scope:
                entry.tell()


def _begin(entry: Entry, message: Message) -> None:
    if message["type"] == "http.response.start":
        entry.status = message["status"]
        headers = MutableHeaders(scope=message)
        headers[REQUEST_ID_HEADER] = entry.request_id
        for name, value in _DEFAULTS.items():
            headers.setdefault(name, value)


class BodyLimit:
    """Refuses a body that is too large: at once when its length is told, else as soon as it is over the limit."""

    def __init__(self, app: ASGIApp, *, limit: int) -> None:
        """Wrap an application; `limit` is in bytes."""
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told = Headers(scope=scope).get("content-length", "")
        if told.isascii() and told.isdigit() and int(told) > self._limit:
            await problem_response(self._refusal(), scope)(scope, receive, send)
            return
        read = 0

        async def receiver() -> Message:
            nonlocal read
            message = await receive()
            if message["type"] == "http.request":
                read += len(message.get("body", b""))
                if read > self._limit:
                    raise self._refusal()
            return message

        await self._app(scope, receiver, send)

    def _refusal(self) -> TooLargeError:
        return TooLargeError(f"The body is larger than {self._limit} bytes; send less.", limit=self._limit)
