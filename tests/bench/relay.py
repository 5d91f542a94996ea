"""The limit: a bare ASGI application that passes a model's bytes through and stores nothing."""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx
import uvicorn
from httpx_aiohttp import AiohttpTransport

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Relay:
    """Posts what it is sent to the model and sends back what comes."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._client: httpx.AsyncClient | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request through."""
        if scope["type"] != "http":
            return
        if self._client is None:
            self._client = httpx.AsyncClient(
                transport=AiohttpTransport(limits=httpx.Limits(max_connections=2000)), timeout=600
            )
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        async with self._client.stream("POST", self._model, content=body) as response:
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
            )
            async for chunk in response.aiter_raw():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


if __name__ == "__main__":
    uvicorn.run(
        Relay(os.environ["MODEL"]), port=int(os.environ["PORT"]), log_level="warning", access_log=False, backlog=4096
    )
