"""What every request passes, in plain ASGI: its id, its log line, the limit of its body, the last net for failures."""

import re
import time
from typing import Final

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.problems import problem_response
from app.api.sse import CutResponseError
from app.domain.errors import InternalError, TooLargeError
from app.domain.ids import fresh
from app.observability.logging import bound

REQUEST_ID_HEADER: Final = "X-Request-Id"
_SANE_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_DEFAULTS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_PROBES: Final = frozenset({"/healthz", "/readyz"})


class Requests:
    """Names each request, logs one line when it ends, and answers 500 for what nothing else has caught."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap an application."""
        self._app = app
        self._log = structlog.get_logger(__name__)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
        request_id = given if _SANE_ID.fullmatch(given) else fresh("req")
        scope.setdefault("state", {})["request_id"] = request_id
        with bound(request_id=request_id):
            await _Exchange(self._app, scope, request_id, self._log).run(receive, send)


class _Exchange:
    """One request and its response."""

    def __init__(self, app: ASGIApp, scope: Scope, request_id: str, log: structlog.typing.FilteringBoundLogger) -> None:
        self._app = app
        self._scope = scope
        self._request_id = request_id
        self._log = log
        self._status: int | None = None
        self._sent = 0
        self._whole = False

    async def run(self, receive: Receive, send: Send) -> None:
        began = time.perf_counter()

        async def sender(message: Message) -> None:
            if message["type"] == "http.response.body":
                self._sent += len(message.get("body", b""))
                self._whole = not message.get("more_body", False)
            else:
                self._begin(message)
            await send(message)

        try:
            await self._app(self._scope, receive, sender)
        except Exception as error:
            if self._status is not None:
                if not isinstance(error, CutResponseError):
                    self._log.exception("request.failed_after_start")
                raise CutResponseError from error
            self._log.exception("request.failed")
            await problem_response(InternalError(), self._scope)(self._scope, receive, sender)
        finally:
            self._tell(time.perf_counter() - began)

    def _begin(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = MutableHeaders(scope=message)
            headers[REQUEST_ID_HEADER] = self._request_id
            for name, value in _DEFAULTS.items():
                headers.setdefault(name, value)

    def _tell(self, seconds: float) -> None:
        path = self._scope["path"]
        tell = self._log.debug if path in _PROBES else self._log.info
        tell(
            "request",
            method=self._scope["method"],
            path=path,
            status=self._status,
            milliseconds=round(seconds * 1000, 1),
            sent_bytes=self._sent,
            whole=self._whole,
        )


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
