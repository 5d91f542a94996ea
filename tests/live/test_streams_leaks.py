"""A server process whose clients vanish by the hundred, again and again: what it holds stays what it was.

Measured and told with `-s`: the sockets to the provider are closed within two seconds, and memory and open files do not
grow from one hundred to the next.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.databases import rows
from tests.live.audit import settled
from tests.live.quick import TOOL, busy
from tests.live.test_streams_vanishing import check_what_is_kept
from tests.mock_model import ModelServer
from tests.servers import PATIENCE, Server, Servers

pytestmark = pytest.mark.slow

CLIENTS = 100
ROUNDS = 3
CLOSING_SECONDS = 2.0
GROWTH = 1.05
MORE_FILES = 20
"""Sockets to the provider and the database are kept for a while: how many there are at a moment differs."""

BUSY = """
SELECT 1 FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND (state <> 'idle' OR xact_start IS NOT NULL)
"""
WORDS: list[dict[str, Any]] = [step for n in range(10) for step in ({"text": f"{n} "}, {"wait": 0.02})]
CALL: dict[str, Any] = {"call": {"id": "call_1", "name": "get_weather", "arguments": {"city": "Rome"}}}


def memory(server: Server) -> int:
    """Give the bytes of the process that are in memory."""
    status = Path(f"/proc/{server.pid}/status").read_text(encoding="utf-8")
    return 1024 * int(status.split("VmRSS:", 1)[1].split(maxsplit=1)[0])


def files(server: Server) -> int:
    """Give how many files and sockets the process has open."""
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


class Client:
    """Starts a turn and is gone at some point of it. Every second one wants its turn to end with it."""

    def __init__(self, server: Server, mock: ModelServer, number: int, name: str, chance: random.Random) -> None:
        self.server, self.mock, self.name = server, mock, name
        self.cancels = number % 2 == 0
        self.leaves = chance.choice(("before the headers", "during the deltas", "during a pause"))
        self.closed_after: float | None = None

    async def live(self) -> None:
        ending = [CALL] if self.leaves == "during a pause" else [{"hang": True}] if self.cancels else []
        self.mock.script({"steps": [*WORDS, *ending]}, model=self.name)
        async with self.connection() as (reader, writer):
            await self.talk(reader, writer)
        if self.leaves == "during a pause":
            stream = (await self.server.get(f"/v1/conversations/{self.name}/pending-request"))["stream_id"]
            async with self.connection() as (reader, writer):
                self.send(writer, "GET", f"/v1/streams/{stream}/events?follow=true")
                await reader.readuntil(b"event: end")
        if self.cancels and self.leaves == "during the deltas":
            await self.see_it_closed()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Give a socket that is reset when it is left."""
        host, port = self.server.root.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield reader, writer
        finally:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        choice = "cancel" if self.cancels else "continue"
        body = {"input": "Talk", "tools": [TOOL], "on_disconnect": choice, "options": {"model": f"openai:{self.name}"}}
        self.send(writer, "POST", f"/v1/conversations/{self.name}/turns", json.dumps(body).encode())
        if self.leaves == "during the deltas":
            await reader.readuntil(b"event: text_delta")
        elif self.leaves == "during a pause":
            said = await reader.readuntil(b"event: end")
            assert b'"status":"paused"' in await reader.readuntil(b"\n\n"), said[-2000:]
        else:
            await writer.drain()

    def send(self, writer: asyncio.StreamWriter, method: str, path: str, body: bytes = b"") -> None:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async def see_it_closed(self) -> None:
        """Note how long the provider's socket stays open when the client has gone."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        (index,) = [n for n, asked in enumerate(self.mock.seen.requests) if asked["body"]["model"] == self.name]
        async with asyncio.timeout(PATIENCE):
            while index not in self.mock.seen.closed:  # noqa: ASYNC110 - the server closes
                await asyncio.sleep(0.005)
        self.closed_after = loop.time() - began


async def a_hundred(server: Server, mock: ModelServer, name: str, chance: random.Random) -> list[float]:
    """Let all of them come and go, wait until nothing runs, and give how long the providers' sockets stayed open."""
    clients = [Client(server, mock, number, f"{name}-{number}", chance) for number in range(CLIENTS)]
    await asyncio.gather(*(client.live() for client in clients))
    await settled(server.database)
    async with asyncio.timeout(PATIENCE):
        while await rows(server.database, BUSY):  # noqa: ASYNC110 - the pools come to rest
            await asyncio.sleep(0.05)
    return [client.closed_after for client in clients if client.closed_after is not None]


@pytest.mark.timeout(400)
async def test_hundreds_of_clients_that_vanish_leave_no_memory_and_no_socket_behind(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    chance = random.Random(10)  # noqa: S311 - a test's own dice
    server = await servers.start(database, mock.base_url, FERMATA_LOG_LEVEL="warning")
    for number in range(2):
        await a_hundred(server, mock, f"warm-{number}", chance)
    before, open_before = memory(server), files(server)
    closed: list[float] = []
    for number in range(ROUNDS):
        closed += await a_hundred(server, mock, f"round-{number}", chance)
    after, open_after = memory(server), files(server)
    print(  # noqa: T201 - what was measured
        f"\nmemory {before / 2**20:.1f} MiB, after {ROUNDS * CLIENTS} more turns {after / 2**20:.1f} MiB"
        f" ({after / before - 1:+.1%}); files {open_before}, {open_after};"
        f" {len(closed)} sockets to the provider closed after at most {max(closed):.3f} s"
    )
    assert after < GROWTH * before
    assert open_after <= open_before + MORE_FILES
    assert max(closed) < CLOSING_SECONDS * busy()
    await check_what_is_kept(database)
    assert "Traceback" not in server.log
    # No slot of a reader is left taken: the whole number of them is free.
    assert (await server.turn("last", "Hello"))[-1].data["status"] == "completed"
