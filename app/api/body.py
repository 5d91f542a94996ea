"""Bodies: read as JSON once, with the limits that keep a strange document from costing more than a refusal.

Text is cleaned here and nowhere else: NUL and lone surrogates are replaced, and the response says so in a header.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn

from fastapi import Request, Response

from app.api.policy import Door
from app.api.route import Route
from app.domain.errors import MalformedError, ValidationError
from app.domain.text import clean

DEEPEST: Final = 128
"""How deep a body may nest: far beyond any real one, far below what any reader of it can take."""

LARGE: Final = 256 * 1024
"""Bodies above this are read in a thread, so that other streams go on meanwhile."""

REPLACED_HEADER: Final = "X-Text-Replaced"


class JsonRequest(Request):
    """A request whose `json` refuses what is not strict JSON and gives text that can be stored."""

    async def json(self) -> Any:
        """Give the body. Raises MalformedError when it is not JSON, ValidationError when it nests too deep."""
        body = await self.body()
        value, replaced = await asyncio.to_thread(read_json, body) if len(body) > LARGE else read_json(body)
        self.state.text_replaced = replaced
        return value


class DoorRoute(Route):
    """A route that knows who calls before it reads a body, and reads bodies by `JsonRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """See the framework's route."""
        handle = self.handler()

        async def admitted(request: Request) -> Response:
            door: Door = request.app.state.door
            request.state.principal = door.admit(request.headers, request.method)
            _check_content_type(request)
            inner = JsonRequest(request.scope, request.receive)
            response = await handle(inner)
            if getattr(inner.state, "text_replaced", False):
                response.headers[REPLACED_HEADER] = "true"
            return response

        return admitted

    def handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Give what answers a request that is admitted: the framework's own."""
        return super().get_route_handler()


def read_json(body: bytes) -> tuple[Any, bool]:
    """Read strict JSON in UTF-8 and clean its text; tells whether any text was replaced."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"The body is not UTF-8 (byte {error.start} can't be read); send JSON in UTF-8."
        raise MalformedError(message) from None
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        message = f"The body is not JSON: {error.msg} (line {error.lineno}, column {error.colno})."
        raise MalformedError(message) from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        # The one thing left that the reader refuses: a number of thousands of digits.
        message = "The body has a number with too many digits; send it as a string."
        raise MalformedError(message) from None
    _check_depth(value)
    return clean(value)


def _check_content_type(request: Request) -> None:
    """Refuse a body that does not call itself JSON: a page of another site can send such a one without asking."""
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    is_json = sent == "application/json" or (sent.startswith("application/") and sent.endswith("+json"))
    if has_body and not is_json:
        message = f"The body's Content-Type is {sent or 'missing'}; send Content-Type: application/json."
        raise MalformedError(message)


def _check_depth(value: Any) -> None:
    level: list[Any] = [value]
    for _ in range(DEEPEST + 1):
        inner: list[Any] = []
        for entry in level:
            if isinstance(entry, dict):
                inner.extend(entry.values())
            elif isinstance(entry, list):
                inner.extend(entry)
        if not inner:
            return
        level = [entry for entry in inner if isinstance(entry, dict | list)]
    if level:
        raise _too_deep()


def _too_deep() -> ValidationError:
    return ValidationError(f"The body nests deeper than {DEEPEST} levels; flatten it.")


def _refuse_constant(name: str) -> NoReturn:
    message = f"The body has {name}, which is not JSON; send null or a string."
    raise MalformedError(message)


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        message = f"The number {digits[:40]} is too large; send it as a string."
        raise MalformedError(message)
    return value
