"""What a stream's reader gets: the bytes as they come, and a broken connection where there is no end to give."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Literal

import httpx
import pytest
from structlog.testing import capture_logs

from app.domain.errors import AppError, GoneError, NotFoundError
from app.domain.views import Cursor
from app.streaming.outlet import CutError
from tests.api.fake_runtime import FRAMES, STATE, FakeRuntime
from tests.api.serving import PATIENCE, application, client_of, served

Server = Literal["h11", "httptools"]
SERVERS = ("h11", "httptools")
TURN = {"input": "a"}
EVENTS = "/v1/streams/st_1/events"


class Gate:
    """Frames that come when a test lets them."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.closed = asyncio.Event()

    async def frames(self) -> AsyncIterator[bytes]:
        try:
            while (item := await self.queue.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.closed.set()


def calling(port: int, accept: str = "*/*") -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE, headers={"Accept": accept})


async def test_frames_go_out_byte_for_byte_with_lf_alone(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.post("/v1/conversations/chat-1/turns", json=TURN)

    assert response.status_code == 200
    assert response.content == b"".join(FRAMES)
    assert b"\r" not in response.content
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["x-stream-id"] == "st_1"
    assert response.headers["x-conversation-id"] == "chat-1"


@pytest.mark.parametrize("path", ["/v1/streams/st_1/tool-results", "/v1/conversations/chat-1/resume"])
async def test_results_are_answered_as_turns_are(path: str, runtime: FakeRuntime) -> None:
    body = {"pause_id": "p", "results": [{"tool_call_id": "call_1", "output": 1}]}
    async with client_of(application(runtime)) as client:
        events = await client.post(path, json=body)
        whole = await client.post(path, json=body, headers={"Accept": "application/json"})

    assert events.content == b"".join(FRAMES)
    assert whole.json()["status"] == "paused"


@pytest.mark.parametrize("server", SERVERS)
async def test_a_frame_arrives_before_the_next_one_is_there(server: Server, runtime: FakeRuntime) -> None:
    gate = Gate()
    runtime.frames = gate.frames
    async with (
        served(application(runtime), server) as port,
        calling(port) as client,
        client.stream("POST", "/v1/turns", json=TURN) as response,
    ):
        pieces = response.aiter_bytes()
        for frame in FRAMES:
            gate.queue.put_nowait(frame)
            assert await anext(pieces) == frame
        gate.queue.put_nowait(None)
        assert [piece async for piece in pieces] == []


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("error", [CutError("gone"), NotFoundError("gone"), ValueError("a bug")])
async def test_a_stream_that_can_not_be_finished_is_cut_after_all_its_frames(
    error: Exception, server: Server, runtime: FakeRuntime
) -> None:
    gate = Gate()
    runtime.frames = gate.frames
    read = b""
    async with served(application(runtime), server) as port, calling(port) as client:
        for item in (*FRAMES, error):
            gate.queue.put_nowait(item)
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
            async with client.stream("POST", "/v1/turns", json=TURN) as response:
                async for piece in response.aiter_raw():
                    read += piece
        again = await client.get("/healthz")

    assert read == b"".join(FRAMES)
    assert again.status_code == 200


@pytest.mark.parametrize("server", SERVERS)
async def test_a_stream_that_is_cut_after_a_silence_has_no_clean_end(server: Server, runtime: FakeRuntime) -> None:
    gate = Gate()
    runtime.frames = gate.frames
    async with served(application(runtime), server) as port, asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {EVENTS} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        gate.queue.put_nowait(FRAMES[0])
        read = await reader.readuntil(FRAMES[0])
        gate.queue.put_nowait(CutError("gone"))
        rest = await reader.read()
        writer.close()

    assert b"transfer-encoding: chunked" in read.lower()
    assert b"0\r\n\r\n" not in rest


@pytest.mark.parametrize("error", [CutError("gone"), NotFoundError("gone")])
async def test_a_cut_is_one_line_in_the_log_without_a_traceback(error: Exception, runtime: FakeRuntime) -> None:
    gate = Gate()
    runtime.frames = gate.frames
    gate.queue.put_nowait(FRAMES[0])
    gate.queue.put_nowait(error)
    with capture_logs() as lines:
        async with client_of(application(runtime)) as client:
            await client.post("/v1/turns", json=TURN)

    assert [line["event"] for line in lines] == ["response.cut", "request"]
    assert lines[0]["exc_info"] is False
    assert lines[1]["whole"] is False


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("accept", ["text/event-stream", "application/json"])
async def test_a_reader_that_goes_away_closes_its_frames(accept: str, server: Server, runtime: FakeRuntime) -> None:
    gate = Gate()
    runtime.frames = gate.frames
    async with served(application(runtime), server) as port, asyncio.timeout(PATIENCE):
        async with calling(port, accept) as client, client.stream("POST", "/v1/turns", json=TURN):
            assert not gate.closed.is_set()
        await gate.closed.wait()


@pytest.mark.parametrize("server", SERVERS)
async def test_a_client_that_goes_away_with_another_request_behind_a_turn_has_gone(
    server: Server, runtime: FakeRuntime
) -> None:
    gate = Gate()
    runtime.frames = gate.frames
    async with served(application(runtime), server) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = json.dumps({**TURN, "on_disconnect": "cancel"}).encode()
        told = b"Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        writer.write(b"POST /v1/turns HTTP/1.1\r\n" + told + body)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()
        async with asyncio.timeout(PATIENCE):
            while not runtime.ended:  # nothing is read while a request waits, so only a write finds nobody there
                gate.queue.put_nowait(b": ping\n\n")
                await asyncio.sleep(0.01)
        assert gate.closed.is_set()


async def test_the_object_form_waits_for_the_end_and_sends_a_space_for_every_heartbeat(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.post("/v1/turns", json=TURN, headers={"Accept": "application/json"})

    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-stream-id"] == "st_1"
    assert response.text.startswith("  {")
    assert response.json() == {
        "stream_id": "st_1",
        "conversation_id": "chat-1",
        "turn_id": "turn_1",
        "status": "paused",
        "final_response": None,
        "pending_request": STATE.pending_request,
        "error": None,
        "usage": None,
        "last_event_id": "7-2",
    }


async def test_the_object_form_is_the_stream_as_it_is_read_later(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        at_once = await client.post("/v1/turns", json=TURN, headers={"Accept": "application/json"})
        later = await client.get("/v1/streams/st_1")

    assert at_once.json() == later.json()


@pytest.mark.parametrize("server", SERVERS)
async def test_an_object_that_can_not_be_finished_is_cut(server: Server, runtime: FakeRuntime) -> None:
    gate = Gate()
    runtime.frames = gate.frames
    for item in (b": ping\n\n", CutError("gone")):
        gate.queue.put_nowait(item)
    async with served(application(runtime), server) as port, calling(port) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post("/v1/turns", json=TURN, headers={"Accept": "application/json"})


@pytest.mark.parametrize(
    ("headers", "query", "cursor", "follow"),
    [
        ({}, "", None, False),
        ({}, "?after=7-12", Cursor(7, 12), False),
        ({"Last-Event-ID": "8-1"}, "", Cursor(8, 1), False),
        ({"Last-Event-ID": "8-1"}, "?after=7-12", Cursor(8, 1), False),
        ({"Last-Event-ID": ""}, "?after=7-12&follow=true", Cursor(7, 12), True),
    ],
)
async def test_events_are_read_on_after_the_cursor(
    headers: dict[str, str], query: str, cursor: Cursor | None, runtime: FakeRuntime, *, follow: bool
) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.get(EVENTS + query, headers=headers)

    assert response.content == b"".join(FRAMES)
    assert runtime.asked == [("st_1", cursor, follow)]


@pytest.mark.parametrize("cursor", ["7", "x-1", "7-", "-1", "7-1-1", "1" * 30 + "-1", "\u0661-1"])
async def test_a_cursor_of_another_form_is_a_400(cursor: str, runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.get(EVENTS, params={"after": cursor})

    assert response.status_code == 400
    assert response.json()["code"] == "SYS_PARSING_ERROR"


async def test_a_cursor_at_the_end_is_a_204(runtime: FakeRuntime) -> None:
    runtime.nothing_follows = True
    async with client_of(application(runtime)) as client:
        response = await client.get(EVENTS, headers={"Last-Event-ID": "7-2"})

    assert response.status_code == 204
    assert response.content == b""


@pytest.mark.parametrize(
    ("refusal", "status"), [(NotFoundError("no such stream"), 404), (GoneError("too late", status="completed"), 410)]
)
async def test_a_refusal_before_the_first_byte_is_a_problem(
    refusal: AppError, status: int, runtime: FakeRuntime
) -> None:
    runtime.refuses = refusal
    async with client_of(application(runtime)) as client:
        events = await client.get(EVENTS)
        turn = await client.post("/v1/turns", json=TURN)

    assert [events.status_code, turn.status_code] == [status, status]
    assert events.headers["content-type"] == "application/problem+json"
    assert json.loads(events.content)["code"] == refusal.code
