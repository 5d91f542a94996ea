"""Routes that start an operation are solved by the door itself: it takes and refuses what the framework would."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import APIRouter

from app.api.body import DoorRoute
from app.api.lasting import Lasting
from app.api.policy import DoorPolicy
from app.api.router import install
from app.api.routes.tool_results import pass_tool_results
from app.api.routes.turns import run_turn, run_turn_in_new_conversation
from app.api.starting import StartingRoute
from tests.api.fake_runtime import FakeRuntime
from tests.api.serving import client_of

ROUTES: dict[str, Callable[..., Any]] = {
    "/own/conversations/{conversation_id}/turns": run_turn,
    "/own/turns": run_turn_in_new_conversation,
    "/own/streams/{stream_id}/tool-results": pass_tool_results,
}
TURNS, NEW = "/own/conversations/chat-1/turns", "/own/turns"
RESULTS = "/own/streams/st_1/tool-results"
HELLO = b'{"input": "Hello"}'
LONG = "u" * 300


@asynccontextmanager
async def door(runtime: FakeRuntime, route_class: type[DoorRoute]) -> AsyncIterator[httpx.AsyncClient]:
    """The same calls on routes of a class."""
    app = Lasting()
    router = APIRouter(route_class=route_class)
    for path, function in ROUTES.items():
        router.post(path, response_model=None)(function)
    app.router.routes.extend(router.routes)
    install(app, DoorPolicy())
    app.state.runtime = runtime
    async with client_of(app, Accept="text/event-stream", **{"Content-Type": "application/json"}) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "content", "headers"),
    [
        (TURNS, HELLO, {}),
        (TURNS, HELLO, {"Idempotency-Key": "k-1", "Last-Event-ID": "7-1"}),
        (f"{TURNS}?user_id=ada&organization_id=acme&other=1", HELLO, {}),
        (f"{TURNS}?user_id=ada&user_id=bob", HELLO, {}),
        (f"{TURNS}?user_id=", HELLO, {}),
        (f"{TURNS}?user_id={LONG}", HELLO, {}),
        (f"{TURNS}?user_id={LONG}&organization_id={LONG}", b'{"input": 1, "more": 2}', {}),
        (TURNS, HELLO, {"Idempotency-Key": " "}),
        (TURNS, HELLO, {"Last-Event-ID": "nonsense"}),
        (TURNS, b'{"input": 1}', {"Last-Event-ID": "nonsense"}),
        (TURNS, b"", {}),
        (TURNS, b"null", {}),
        (TURNS, b"[]", {}),
        (TURNS, b"{}", {}),
        (TURNS, b"{nope", {}),
        (TURNS, b'{"input": "Hello", "unknown": 1, "options": {"temperature": 9}}', {}),
        (TURNS, HELLO, {"Content-Type": "application/problem+json; charset=utf-8"}),
        (TURNS, HELLO, {"Content-Type": "text/plain"}),
        ("/own/conversations/no%20name/turns", HELLO, {}),
        ("/own/conversations/no%20name/turns", b"", {}),
        (f"/own/conversations/no%20name/turns?user_id={LONG}", b'{"input": 1}', {}),
        (NEW, HELLO, {"Idempotency-Key": "k-1"}),
        (RESULTS, b'{"results": [{"tool_call_id": "call_1", "output": 21}]}', {}),
        (RESULTS, b'{"results": []}', {}),
        (f"/own/streams/{LONG}/tool-results", b'{"results": [{"tool_call_id": "call_1", "output": 21}]}', {}),
    ],
)
async def test_a_call_is_answered_as_the_framework_would_answer_it(
    path: str, content: bytes, headers: dict[str, str]
) -> None:
    class Framework(StartingRoute):
        handler = DoorRoute.handler

    told = []
    for route_class in (StartingRoute, Framework):
        runtime = FakeRuntime()
        async with door(runtime, route_class) as client:
            answer = await client.post(path, content=content, headers={**headers, "X-Request-Id": "r-1"})
        told.append((answer.status_code, dict(answer.headers), answer.content, runtime.asked))
    assert told[0] == told[1]
