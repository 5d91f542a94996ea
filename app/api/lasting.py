"""Responses that last: what is left of them when they have begun is sent when the layers around them are gone.

A layer stays on the stack while what it has called runs, which is half of what an idle reader would hold. So a response
that lasts begins inside the layers, as any does, and leaves the rest of itself in the scope: the application, outside
of all others, sends that.
"""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from app.api.middleware import ENTRY, REST, CutResponseError, Entry
from app.observability.lines import bound, log

Rest = Callable[[Entry, Receive, Send], Awaitable[None]]
"""Sends what is left of a response, and counts it."""


class Lasting(FastAPI):
    """The application. None of its layers, nor the framework's own, is held while the rest of a response is sent.

    What they write into the scope goes with them; the server keeps its own for as long as the response lasts.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        layered = dict(scope)
        await super().__call__(layered, receive, send)
        rest: Rest | None = layered.get(REST)
        if rest is None:
            return
        entry: Entry = layered[ENTRY]
        del layered
        with bound(request_id=entry.request_id):
            try:
                await rest(entry, receive, send)
            except CutResponseError:
                raise
            except Exception as error:
                log(__name__).exception("request.failed_after_start")
                raise CutResponseError from error
            finally:
                entry.tell()
