"""Readers: how many there may be, what becomes of one that takes nothing or goes, what they hear in silence."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.domain.ids import row_key
from tests.databases import Databases, rows
from tests.live.quick import TOOL, follow, read_until_cut
from tests.mock_model import ModelServer
from tests.servers import PATIENCE, LiveStream, Server, Servers
from tests.sse import Frame, text_of

HANG: dict[str, Any] = {"steps": [{"text": "It is "}, {"hang": True}]}
CAPS = (
    "FERMATA_MAX_READERS_PER_STREAM",
    "FERMATA_MAX_READERS_PER_USER",
    "FERMATA_MAX_READERS",
)


@pytest.fixture(scope="module")
async def talking(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Server, ModelServer]]:
    """A server whose streams say something every fifth of a second, and its model."""
    servers = Servers(tmp_path_factory.mktemp("talking"))
    async with databases.fresh() as url, ModelServer() as model:
        try:
            yield await servers.start(url, model.base_url, FERMATA_HEARTBEAT_SECONDS="0.2"), model
        finally:
            await servers.end()
        assert [request["violations"] for request in model.seen.requests if request["violations"]] == []


Talking = tuple[Server, ModelServer]


async def heard(live: LiveStream, count: int = 2) -> None:
    """Wait until somebody who reads the stream has heard so many comments of silence."""
    async with asyncio.timeout(PATIENCE):
        while live.comments.count("ping") < count:  # noqa: ASYNC110 - what the reader hears
            await asyncio.sleep(0.02)


async def let_in(server: Server, path: str) -> None:
    """Come back until there is a place for a reader."""
    async with asyncio.timeout(30):
        while True:
            async with server.client.stream("GET", path) as again:
                if again.status_code == httpx.codes.OK:
                    return
            await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("cap", CAPS)
async def test_beyond_a_cap_a_reader_is_told_when_to_come_back_and_a_place_that_is_left_is_free(
    servers: Servers, database: str, mock: ModelServer, cap: str
) -> None:
    server = await servers.start(database, mock.base_url, **{cap: "1"})
    mock.script(HANG)
    async with server.stream("POST", "/v1/conversations/c/turns", json={"input": "Hello"}) as live:
        await live.until("text_delta")
        path = f"/v1/streams/{live.response.headers['x-stream-id']}/events"
        refused = await server.client.get(path)
        assert (refused.status_code, refused.json()["code"]) == (429, "SYS_RATE_LIMIT_EXCEEDED")
        assert int(refused.headers["retry-after"]) > 0
        # What lasts no longer than an answer takes no place.
        assert (await server.client.get("/v1/conversations/c")).status_code == httpx.codes.OK
    await let_in(server, path)


@pytest.mark.slow
async def test_a_turn_beyond_a_cap_is_refused_before_it_begins(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    server = await servers.start(database, mock.base_url, FERMATA_MAX_READERS_PER_USER="1")
    mock.script(HANG)
    async with server.stream("POST", "/v1/conversations/c/turns", json={"input": "Hello"}) as live:
        await live.until("text_delta")
        refused = await server.client.post("/v1/conversations/d/turns", json={"input": "Hello"})
        assert refused.status_code == httpx.codes.TOO_MANY_REQUESTS
        left = await server.client.post(
            "/v1/conversations/e/turns", json={"input": "Hello"}, headers={"Prefer": "respond-async"}
        )
        assert left.status_code == httpx.codes.ACCEPTED
    assert {row["conversation_id"] for row in await rows(database, "SELECT * FROM conversations")} == {"c", "e"}


async def raw_request(server: Server, method: str, path: str, body: Any = None, **options: Any) -> socket.socket:
    """Send a request over a socket of our own, to do with it what no client does."""
    url = httpx.URL(server.root)
    raw = socket.socket()
    if "receive" in options:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options["receive"])
    raw.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(raw, (url.host, url.port))
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    await loop.sock_sendall(raw, f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return raw


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_reader_that_takes_nothing_is_cut_and_the_turn_goes_on(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    server = await servers.start(
        database, mock.base_url, FERMATA_BLOCKED_SEND_SECONDS="0.5", FERMATA_MAX_READERS_PER_USER="1"
    )
    mock.script({"steps": [{"text": "x" * 20_000} for _ in range(400)]})
    stuck = await raw_request(server, "POST", "/v1/conversations/c/turns", {"input": "Much"}, receive=4096)
    try:
        async with asyncio.timeout(30):
            while not (found := await rows(database, "SELECT stream_id FROM streams")):  # noqa: ASYNC110 - stored elsewhere
                await asyncio.sleep(0.02)
            stream_id = found[0]["stream_id"]
        # The one place that there is is free again when the reader has been cut.
        await let_in(server, f"/v1/streams/{stream_id}/events")
        got: list[Frame] = []
        await follow(server, stream_id, got, 100)
        assert len(text_of(got)) == 8_000_000
        assert got[-1].data["status"] == "completed"
    finally:
        stuck.close()


async def ended(server: Server, stream_id: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while True:
            state: dict[str, Any] = await server.get(f"/v1/streams/{stream_id}")
            if state["status"] != "running":
                return state
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("on_disconnect", ["continue", "cancel"])
async def test_a_client_that_goes_during_the_deltas_ends_its_turn_only_if_it_said_so(
    talking: Talking, name: str, on_disconnect: str
) -> None:
    server, model = talking
    model.script({"steps": [{"text": "It is "}, {"gate": f"{name} has gone"}, {"text": "late"}]})
    body = {"input": "What time is it?", "on_disconnect": on_disconnect}
    async with server.stream("POST", f"/v1/conversations/{name}/turns", json=body) as live:
        await live.until("text_delta")
        stream_id = live.response.headers["x-stream-id"]
    if on_disconnect == "continue":
        model.open(f"{name} has gone")
    state = await ended(server, stream_id)
    stored = [message["content"] for message in (await server.get(f"/v1/conversations/{name}/messages"))["items"]]
    if on_disconnect == "cancel":
        assert len(await model.closed(1)) > 0
        assert state["status"] == "cancelled"
        assert stored == ["What time is it?", "It is "]
    else:
        assert state["status"] == "completed"
        assert stored == ["What time is it?", "It is late"]
    await server.turn(name, "And now?")


@pytest.mark.parametrize("on_disconnect", ["continue", "cancel"])
async def test_a_client_that_goes_before_the_headers(talking: Talking, name: str, on_disconnect: str) -> None:
    server, model = talking
    model.script({"steps": [{"gate": f"{name} has gone"}, {"text": "Late"}]})
    body = {"input": "Hello", "on_disconnect": on_disconnect}
    (await raw_request(server, "POST", f"/v1/conversations/{name}/turns", body)).close()
    async with asyncio.timeout(PATIENCE):
        while not (found := await rows(server.database, STREAMS, row_key("", name))):  # noqa: ASYNC110 - stored elsewhere
            await asyncio.sleep(0.01)
    if on_disconnect == "continue":
        model.open(f"{name} has gone")
    state = await ended(server, found[0]["stream_id"])
    assert state["status"] == {"continue": "completed", "cancel": "cancelled"}[on_disconnect]
    model.seen.scripts.clear()  # a turn that was cancelled early has not asked


STREAMS = "SELECT stream_id FROM streams WHERE conversation = $1"


async def test_a_client_that_goes_at_a_pause_or_from_a_replay_ends_nothing(talking: Talking, name: str) -> None:
    server, model = talking
    body = {"input": "What is the weather?", "tools": [TOOL], "on_disconnect": "cancel"}
    async with server.stream("POST", f"/v1/conversations/{name}/turns", json=body) as live:
        await live.until("end")
    pending = await server.get(f"/v1/conversations/{name}/pending-request")
    model.script({"steps": [{"text": "It is "}, {"gate": "the replay is left"}, {"text": "raining"}]})
    results = {"results": [{"tool_call_id": pending["tool_calls"][0]["id"], "output": "rain"}]}
    path = f"/v1/streams/{pending['stream_id']}"
    async with server.stream("POST", f"{path}/tool-results", json={**results, "on_disconnect": "cancel"}) as live:
        await live.until("text_delta")
        async with server.stream("GET", f"{path}/events") as replay:
            await replay.next()
        model.open("the replay is left")
        assert (await live.rest())[-1].data["status"] == "completed"


async def test_every_stream_says_something_in_silence(talking: Talking, name: str) -> None:
    server, model = talking
    model.script({"steps": [{"gate": "both have heard it"}, {"text": "Late"}]})
    async with server.stream("POST", f"/v1/conversations/{name}/turns", json={"input": "Hello"}) as live:
        await live.next()
        path = f"/v1/streams/{live.response.headers['x-stream-id']}/events"
        async with server.stream("GET", path) as replay:
            reading = [asyncio.create_task(one.rest()) for one in (live, replay)]
            await asyncio.gather(heard(live), heard(replay))
            model.open("both have heard it")
            assert [frames[-1].event for frames in await asyncio.gather(*reading)] == ["end", "end"]
            assert replay.comments[0] == "ok"


async def test_the_form_of_one_object_is_kept_open_by_white_space(talking: Talking, name: str) -> None:
    server, model = talking
    model.script({"steps": [{"gate": "a space came"}, {"text": "Late"}]}, {"status": 401, "body": {"error": {}}})
    accept, path = {"Accept": "application/json"}, f"/v1/conversations/{name}/turns"
    for status in ("completed", "failed"):
        async with server.client.stream("POST", path, json={"input": "Hello"}, headers=accept) as answer:
            assert answer.status_code == httpx.codes.OK
            assert answer.headers["content-type"] == "application/json"
            pieces = answer.aiter_raw()
            content = await anext(pieces)
            assert content == b" " or status == "failed"
            model.open("a space came")
            content += b"".join([piece async for piece in pieces])
        told = json.loads(content)
        assert told["status"] == status
        stream = f"/v1/streams/{told['stream_id']}"
        assert (await server.client.get(f"{stream}/events", headers=accept)).json() == told
        assert await server.get(stream) == told


async def test_a_turn_that_waits_begins_its_response_soon_and_is_told_of_its_refusal_there(
    talking: Talking, name: str
) -> None:
    server, model = talking
    path = f"/v1/conversations/{name}/turns"
    model.script({"steps": [{"text": "First"}, {"gate": "the second one waits"}]})
    waiting = {"input": "Second", "on_busy": "wait"}
    async with server.stream("POST", path, json={"input": "First"}) as first:
        await first.until("text_delta")
        async with server.stream("POST", path, json=waiting) as second:
            assert second.response.status_code == httpx.codes.OK
            reading = asyncio.create_task(second.rest())
            await heard(second, 1)
            model.open("the second one waits")
            assert text_of(await reading) == "You said: Second"
            assert second.comments[0] == "ok"
        await first.rest()
    # An interrupting turn gets its answer in the response that had begun before.
    model.script({"steps": [{"text": "Third"}, {"hang": True}]})
    async with server.stream("POST", path, json={"input": "Third"}) as third:
        await third.until("text_delta")
        got: list[Frame] = []
        how = await read_until_cut(server, "POST", path, got, json=waiting | {"on_busy": "interrupt"})
        assert how == "end"
        assert got[-1].data["status"] == "completed"
