"""Settings under which a takeover takes seconds, and readers for streams whose process may go at any moment."""

import asyncio
import os
from typing import Any

import httpx

from tests.databases import rows
from tests.servers import CUT, Server
from tests.sse import Frame

LEASE: dict[str, str] = {"FERMATA_LEASE_SECONDS": "3", "FERMATA_LEASE_RENEW_SECONDS": "0.7"}
"""Not shorter: a process that a busy machine does not let run for that long is taken for dead."""

TAKEOVER_SECONDS = 40.0
"""Bounds a wait for a takeover, which takes three to eight seconds under that lease."""

TOOL: dict[str, Any] = {
    "name": "get_weather",
    "description": "Tell the weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def busy() -> float:
    """Give how many times what its processors can do is asked of this machine; what is measured grows with that."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


async def read_until_cut(server: Server, method: str, path: str, got: list[Frame], **request: Any) -> str:
    """Read a response into `got`; tells how it ended: `end`, `cut`, `refused` or `nothing`."""
    try:
        async with server.stream(method, path, **request) as live:
            if live.response.status_code == httpx.codes.NO_CONTENT:
                return "nothing"
            if not live.response.is_success:
                return "refused"
            try:
                while True:
                    got.append(await live.next(30.0))
            except StopAsyncIteration:
                return "end"
    except (*CUT, httpx.ConnectError, httpx.ReadTimeout):
        return "cut"


async def follow(server: Server, stream_id: str, got: list[Frame], seconds: float = TAKEOVER_SECONDS) -> None:
    """Come back to a stream until its last end has been read; whatever was read before is not asked for again."""
    async with asyncio.timeout(seconds):
        while True:
            headers = {"Last-Event-ID": got[-1].id} if got else {}
            how = await read_until_cut(server, "GET", f"/v1/streams/{stream_id}/events", got, headers=headers)
            if how in {"end", "nothing"} and got and got[-1].event == "end":
                return
            await asyncio.sleep(0.02)


async def durable(database: str, stream_id: str, frames: int, fence: int = 0) -> None:
    """Wait until so many frames of the stream are stored, all of them of that fence or a younger one."""
    async with asyncio.timeout(TAKEOVER_SECONDS):
        while True:
            found = await rows(
                database,
                "SELECT coalesce(max(last_n), 0) AS n FROM stream_events WHERE stream_id = $1 AND fence >= $2",
                stream_id,
                fence,
            )
            if found[0]["n"] >= frames:
                return
            await asyncio.sleep(0.02)
