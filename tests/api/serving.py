"""Applications for tests: called in the process, or served by uvicorn on a free port of this machine."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx
import uvicorn
from fastapi import FastAPI

from app.api.runtime import Runtime
from app.commands import CONNECTION
from app.main import create_app
from app.settings import Settings

PATIENCE = 30.0
OWN_ADDRESS = "http://127.0.0.1:8000"


def given(**values: Any) -> Settings:
    """Give settings that take nothing from the machine's environment file."""
    return Settings(_env_file=None, **values)


def application(runtime: Runtime, **values: Any) -> FastAPI:
    """Give an application whose runtime is there already, so that no lifespan is needed."""
    app = create_app(given(**values))
    app.state.runtime = runtime
    return app


def client_of(app: FastAPI, **headers: str) -> httpx.AsyncClient:
    """Give a client that calls the application in this process; responses come when they are whole."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=OWN_ADDRESS, headers=headers)


class _Quiet(uvicorn.Server):
    """A server that leaves the signals of the test run alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    async def run_on(self, listener: socket.socket) -> None:
        await self._serve([listener])


@asynccontextmanager
async def served(app: FastAPI, http: Literal["h11", "httptools"] = "httptools") -> AsyncIterator[int]:
    """Serve the application on a free port; gives the port."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        http=CONNECTION if http == "httptools" else http,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=2,
    )
    server = _Quiet(config)
    task = asyncio.create_task(server.run_on(listener))
    try:
        async with asyncio.timeout(PATIENCE):
            await server.listening.wait()
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        async with asyncio.timeout(PATIENCE):
            await task
