"""A model server in the test's own loop, and clients of it on each transport."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Literal, Protocol

import pytest

from app.providers.calls import HttpPolicy
from app.providers.chat import ChatProvider
from app.providers.http import ModelHttp
from tests.mock_model import ModelServer

Transport = Literal["aiohttp", "httpx"]


class Connect(Protocol):
    """Makes a provider of the server; seconds replace those of the policy."""

    def __call__(self, base_url: str | None = None, **seconds: float) -> ChatProvider: ...


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """Give a running server."""
    async with ModelServer() as running:
        yield running


@pytest.fixture(params=["aiohttp", "httpx"])
def transport(request: pytest.FixtureRequest) -> Transport:
    """Give each transport in turn."""
    return "aiohttp" if request.param == "aiohttp" else "httpx"


@pytest.fixture
async def connect(server: ModelServer, transport: Transport) -> AsyncIterator[Connect]:
    """Give what makes a provider; its client is closed at the end."""
    async with AsyncExitStack() as clients:

        def make(base_url: str | None = None, **seconds: float) -> ChatProvider:
            http = ModelHttp(HttpPolicy(transport=transport, verify_tls=False, **seconds))  # type: ignore[arg-type]
            clients.push_async_callback(http.aclose)
            return ChatProvider("mock", base_url or server.base_url, "sk-test-0123456789", http)

        yield make
