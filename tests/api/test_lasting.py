"""A response that lasts is sent outside of the layers that made it, and is told of as any other."""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, AsyncIterator
from types import CoroutineType
from typing import Any, Literal

import httpx
import pytest
import structlog
from dirty_equals import IsPartialDict
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.testing import capture_logs

from app.api.middleware import CutResponseError, Entry
from app.api.sse import Frames, ReaderTerms
from app.streaming.outlet import Outlet, Reader
from tests.api.fake_runtime import FRAMES, FakeRuntime
from tests.api.serving import PATIENCE, application, client_of, served

EVENTS = "/v1/streams/st_1/events"
FORMS = ("text/event-stream", "application/json")
SCOPE: dict[str, Any] = {
    "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "method": "GET",
    "path": EVENTS, "raw_path": EVENTS.encode(), "query_string": b"", "root_path": "", "headers": [],
}  # fmt: skip


def waits() -> list[list[str]]:
    """Give what each task of this process waits in, from its first coroutine to its last."""
    chains = []
    for task in asyncio.all_tasks():
        chain: list[str] = []
        waiting: object = task.get_coro()
        while isinstance(waiting, CoroutineType):
            chain.append(waiting.__qualname__)
            waiting = waiting.cr_await
        chains.append(chain)
    return chains


@pytest.mark.parametrize("accept", FORMS)
async def test_no_layer_is_on_the_stack_while_a_response_lasts(accept: str, runtime: FakeRuntime) -> None:
    goes_on = asyncio.Event()

    async def frames() -> AsyncIterator[bytes]:
        yield b": ping\n\n"
        await goes_on.wait()
        for frame in FRAMES:
            yield frame

    runtime.frames = frames
    async with (
        served(application(runtime)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client,
        client.stream("GET", EVENTS, headers={"Accept": accept}) as response,
    ):
        pieces = response.aiter_raw()
        await anext(pieces)
        held = [chain for chain in waits() if "Lasting.__call__" in chain]
        goes_on.set()
        rest = b"".join([piece async for piece in pieces])

    assert rest
    assert [chain[chain.index("Lasting.__call__") + 1] for chain in held] == ["Frames.__call__"]


@pytest.mark.parametrize("accept", FORMS)
async def test_the_line_of_a_response_that_lasts_tells_all_of_it(accept: str, runtime: FakeRuntime) -> None:
    bound: list[dict[str, Any]] = []

    async def frames() -> AsyncIterator[bytes]:
        for frame in FRAMES:
            bound.append(structlog.contextvars.get_contextvars())
            yield frame

    runtime.frames = frames
    before = structlog.contextvars.get_contextvars()
    with capture_logs() as lines:
        async with client_of(application(runtime)) as client:
            response = await client.get(EVENTS, headers={"X-Request-Id": "r-1", "Accept": accept})

    told = {"event": "request", "method": "GET", "path": EVENTS, "status": 200, "whole": True}
    assert lines == [IsPartialDict(**told, sent_bytes=len(response.content))]
    assert response.headers["x-request-id"] == "r-1"
    assert [ids["request_id"] for ids in bound] == ["r-1"] * len(FRAMES)
    assert structlog.contextvars.get_contextvars() == before


async def test_a_layer_that_is_added_later_is_inside_too(runtime: FakeRuntime) -> None:
    app = application(runtime)
    passed: list[str] = []

    class Later:
        def __init__(self, app: ASGIApp) -> None:
            self._app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await self._app(scope, receive, send)
            passed.append(scope["path"])

    app.add_middleware(Later)
    async with client_of(app) as client:
        response = await client.get(EVENTS)

    assert response.content == b"".join(FRAMES)
    assert passed == [EVENTS]


async def test_a_response_that_can_not_begin_gives_its_place_back(runtime: FakeRuntime) -> None:
    app = application(runtime)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: object) -> None:
        message = "The socket is gone."
        raise OSError(message)

    with pytest.raises(CutResponseError):
        await app({**SCOPE}, receive, send)

    assert len(app.state.door.readers) == 0


@pytest.mark.parametrize("accept", FORMS)
async def test_a_client_that_takes_all_but_the_end_is_cut_like_any_that_takes_nothing(
    accept: str, runtime: FakeRuntime
) -> None:
    app = application(runtime, blocked_send_seconds=0.1)
    asked = asyncio.Event()
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if asked.is_set():
            await gone.wait()
        asked.set()
        return {"type": "http.request", "body": b'{"input": "a"}', "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body" and not message["more_body"]:
            await gone.wait()

    turn = {"method": "POST", "path": "/v1/turns", "raw_path": b"/v1/turns"}
    headers = [(b"accept", accept.encode()), (b"host", b"127.0.0.1:8000"), (b"content-type", b"application/json")]
    with capture_logs() as lines:
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(CutResponseError):
                await app({**SCOPE, **turn, "headers": headers}, receive, send)

    assert [line["event"] for line in lines] == ["response.cut", "request"]
    assert lines[-1]["whole"] is False
    assert len(app.state.door.readers) == 0


@pytest.mark.parametrize("server", ["h11", "httptools"])
async def test_what_becomes_of_the_connection_is_told_once(
    server: Literal["h11", "httptools"], runtime: FakeRuntime
) -> None:
    async with served(application(runtime), server) as port, httpx.AsyncClient(timeout=PATIENCE) as client:
        kept = await client.get(f"http://127.0.0.1:{port}{EVENTS}")
        closed = await client.get(f"http://127.0.0.1:{port}{EVENTS}", headers={"Connection": "close"})

    assert kept.content == closed.content == b"".join(FRAMES)
    assert [value.lower() for value in kept.headers.get_list("connection")] in ([], ["keep-alive"])
    assert [value.lower() for value in closed.headers.get_list("connection")] == ["close"]


async def test_frames_that_fail_to_close_cut_the_response_and_give_its_place_back(runtime: FakeRuntime) -> None:
    class Stuck:
        def __aiter__(self) -> "Stuck":
            return self

        async def __anext__(self) -> bytes:
            raise StopAsyncIteration

        async def aclose(self) -> None:
            message = "a bug"
            raise ValueError(message)

    runtime.frames = Stuck
    app = application(runtime)
    with capture_logs() as lines:
        async with client_of(app) as client:
            await client.get(EVENTS)

    assert [line["event"] for line in lines] == ["request.failed_after_start", "request"]
    assert len(app.state.door.readers) == 0


class Sent:
    async def __call__(self, message: Message) -> None: ...


@pytest.mark.parametrize("goes", [False, True])
async def test_a_reader_whose_response_has_ended_leaves_nothing_to_the_collector(
    goes: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        yield FRAMES[0]
        if goes:
            await asyncio.Event().wait()

    async def receive() -> Message:
        if not goes:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    send = Sent()
    sent = weakref.ref(send)
    rest = Frames(Reader(pieces(), Outlet()), ReaderTerms())
    gc.disable()
    try:
        await asyncio.wait_for(rest(Entry("GET", EVENTS, "req_1"), receive, send), PATIENCE)
        del rest, send
        assert sent() is None
    finally:
        gc.enable()
