"""A host that answers in the instant in which it reads the request is never told that there is no pause."""

import asyncio
import json
from typing import Any

import pytest

from app.domain.ids import row_key
from tests.databases import rows
from tests.kill_points import COMMIT, DONE
from tests.live.acts import Scene
from tests.live.battle import Two
from tests.live.quick import TOOL
from tests.servers import Server

pytestmark = pytest.mark.slow

AT_ONCE = 4
SLOW_SECONDS = 3.0


class Wire:
    """HTTP by hand: no client stands between the bytes and the answer to them."""

    def __init__(self, server: Server) -> None:
        host, port = server.root.removeprefix("http://").split(":")
        self._host, self._port = host, int(port)

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send a request on a socket of its own."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        self.write(writer, method, path, body)
        return reader, writer

    def write(self, writer: asyncio.StreamWriter, method: str, path: str, body: Any) -> None:
        content = json.dumps(body).encode() if body is not None else b""
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
        head += f"Accept: text/event-stream\r\nContent-Length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)


async def request_of(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Read until the request for the host is there, to its last byte and no further."""
    while True:
        line = await reader.readline()
        assert line, "the stream ended without a request"
        if line.startswith(b'data: {"type":"tool_call_request"') and b'"pause_id"' in line:
            asked: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
            return asked


async def answer_at_once(asked_of: Wire, answered_to: Wire, name: str) -> tuple[bytes, bytes]:
    """Run a turn that pauses, answer on a socket that is open already, and give the answer's status line and rest."""
    reader, writer = await asked_of.ask(
        "POST", f"/v1/conversations/{name}/turns", {"input": "What is the weather?", "tools": [TOOL]}
    )
    waiting, answering = await asyncio.open_connection(answered_to._host, answered_to._port)
    asked = await request_of(reader)
    results = [{"tool_call_id": call["id"], "output": "21 degrees"} for call in asked["tool_calls"]]
    answered_to.write(answering, "POST", f"/v1/streams/{asked['stream_id']}/tool-results", {"results": results})
    status = await waiting.readline()
    rest = await waiting.readuntil(b"event: end\n")
    rest += await waiting.readline()
    for one in (writer, answering):
        one.close()
    return status, rest


@pytest.mark.parametrize("times", [20, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_an_answer_in_the_same_instant_is_taken(two: Two, name: str, times: int, *, elsewhere: bool) -> None:
    _, a, b = two
    few = asyncio.Semaphore(AT_ONCE)

    async def once(number: int) -> None:
        here, there = (Wire(a), Wire(b)) if number % 2 else (Wire(b), Wire(a))
        async with few:
            status, rest = await answer_at_once(here, there if elsewhere else here, f"{name}-{number}")
        assert status.startswith(b"HTTP/1.1 200"), status
        assert b'"status":"completed"' in rest

    async with asyncio.timeout(times):
        await asyncio.gather(*map(once, range(times)))


async def test_with_slow_storage_no_request_is_seen_before_its_pause_is_stored(two: Two, name: str) -> None:
    ground, a, b = two
    hold = ground.points.hold("settle", COMMIT, row_key("", name))
    asking = asyncio.create_task(answer_at_once(Wire(a), Wire(b), name))
    await hold.reached()
    for _ in range(int(SLOW_SECONDS / 0.5)):
        assert not await rows(
            ground.database, "SELECT 1 FROM pending_external_tool_requests WHERE conversation_id = $1", name
        )
        assert await b.get(f"/v1/conversations/{name}/pending-request") is None
        stored = await rows(ground.database, REQUESTS, name)
        assert not stored, "a request in the log that no pause stands behind"
        assert not asking.done()
        await asyncio.sleep(0.5)
    hold.go()
    async with asyncio.timeout(30):
        status, rest = await asking
    assert status.startswith(b"HTTP/1.1 200"), status
    assert b'"status":"completed"' in rest


PAUSES = "SELECT 1 FROM pending_external_tool_requests WHERE conversation_id = $1"
REQUESTS = """
SELECT 1 FROM stream_events JOIN conversations ON id = conversation
WHERE conversation_id = $1 AND position('"pause_id"'::bytea IN frames) > 0
"""


@pytest.mark.parametrize("lost", [False, True])
async def test_a_pause_that_its_own_process_does_not_know_of_yet_can_be_answered_elsewhere(
    two: Two, name: str, *, lost: bool
) -> None:
    ground, a, b = two
    scene = Scene(a, ground.mock, name)
    hold = ground.points.hold("settle", DONE, row_key("", name))
    asking = asyncio.create_task(scene.say("What is the weather?"))
    await hold.reached()
    pending = await b.get(f"/v1/conversations/{name}/pending-request")
    done = await b.results(pending["stream_id"], {"tool_call_id": pending["tool_calls"][0]["id"], "output": "21"})
    assert done[-1].data["status"] == "completed"
    (hold.drop if lost else hold.go)()
    async with asyncio.timeout(20):
        told = await asking
    assert told.whole
    assert told.frames[-1].data == {"status": "paused", "pause_id": pending["pause_id"], "last": told.frames[-1].n}
    replayed = await b.replay(pending["stream_id"])
    assert replayed == b"".join(frame.raw for frame in [*told.frames, *done])
