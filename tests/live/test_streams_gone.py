"""What goes: events past their retention, and a conversation that is erased, with everybody who reads it."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.databases import execute, rows
from tests.live.quick import TOOL
from tests.mock_model import ModelServer
from tests.servers import CUT, PATIENCE, Server, Servers

pytestmark = pytest.mark.slow

MARK = "an-unmistakable-word"


async def traces(database: str, *marks: str) -> list[str]:
    """Give the tables in which one of the marks can be found, whatever the column."""
    tables = await rows(
        database,
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'",
    )
    found = []
    for table in sorted(row["table_name"] for row in tables):
        for row in await rows(database, f'SELECT * FROM "{table}"'):  # noqa: S608 - names of our own tables
            text = " ".join(
                value.decode(errors="replace") if isinstance(value, bytes) else str(value) for value in row.values()
            )
            if any(mark in text for mark in marks):
                found.append(table)
                break
    return found


async def found(server: Server, path: str) -> httpx.Response | None:
    """Ask for a stream's events; None when they went while they were read."""
    try:
        return await server.client.get(path)
    except CUT:
        return None


@pytest.mark.slow
async def test_events_past_their_retention_are_gone_and_their_streams_state_is_told(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    server = await servers.start(database, mock.base_url, FERMATA_EVENT_RETENTION_HOURS="0.0005")
    key = {"Idempotency-Key": "once"}
    first = await server.client.post("/v1/conversations/c/turns", json={"input": "Hello"}, headers=key)
    stream_id = first.headers["x-stream-id"]
    state = await server.get(f"/v1/streams/{stream_id}")
    paused = await server.turn("d", "What is the weather?", tools=[TOOL])
    path = f"/v1/streams/{stream_id}/events"
    async with asyncio.timeout(30):
        while (answer := await found(server, path)) is None or answer.is_success:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert (answer.status_code, answer.json()["code"]) == (410, "SYS_EVENTS_EXPIRED")
    assert answer.json()["stream"] == state
    assert await server.get(f"/v1/streams/{stream_id}") == state
    at_end = await server.client.get(path, headers={"Last-Event-ID": state["last_event_id"]})
    assert at_end.status_code == httpx.codes.NO_CONTENT
    late = {"results": [{"tool_call_id": "call", "output": 1}]}
    refused = await server.client.post(f"/v1/streams/{stream_id}/tool-results", json=late)
    assert (refused.status_code, refused.json()["code"]) == (409, "TOOL_ERROR")
    assert await rows(database, "SELECT 1 FROM stream_events WHERE stream_id = $1", stream_id) == []
    # A stream that holds a pause has not ended, however old it is.
    assert await server.replay(paused[0].data["stream_id"]) == b"".join(frame.raw for frame in paused)
    again = await server.client.post("/v1/conversations/c/turns", json={"input": "Hello"}, headers=key)
    assert "idempotency-replayed" not in again.headers


@pytest.mark.parametrize("persistence", ["true", "false"])
async def test_an_erased_conversation_leaves_no_trace_in_any_table(
    servers: Servers, database: str, mock: ModelServer, persistence: str
) -> None:
    server = await servers.start(
        database, mock.base_url, FERMATA_ENABLE_CONVERSATIONAL_PERSISTENCE=persistence, FERMATA_DRAIN_GRACE_SECONDS="0"
    )
    caller = {"user_id": f"user-{MARK}"}
    tools = {"tools": [{**TOOL, "description": MARK}]}
    await server.turn(f"c-{MARK}", f"Say {MARK}", user_context={"note": MARK}, **caller)
    await server.turn(f"c-{MARK}", "What is the weather?", **caller, **tools)
    pending = await server.get(f"/v1/conversations/c-{MARK}/pending-request", **caller)
    result = {"tool_call_id": pending["tool_calls"][0]["id"], "output": MARK}
    await server.results(pending["stream_id"], result, **caller)
    await server.turn(f"c-{MARK}", "What is the weather?", **caller, **tools)
    await server.turn("other", "Hello")
    key = str((await rows(database, "SELECT id FROM conversations WHERE conversation_id = $1", f"c-{MARK}"))[0]["id"])
    marks = (MARK, key, key.replace("-", ""))
    assert len(await traces(database, *marks)) > 3
    gone = await server.client.delete(f"/v1/conversations/c-{MARK}", params=caller)
    assert gone.status_code == httpx.codes.NO_CONTENT
    assert await traces(database, *marks) == []
    assert await traces(database, "other") != []


async def test_erasing_a_conversation_ends_what_runs_in_it_and_cuts_its_readers_everywhere(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    a, b = await asyncio.gather(*(servers.start(database, mock.base_url) for _ in range(2)))
    mock.script({"steps": [{"text": "It is "}, {"hang": True}]})
    async with a.stream("POST", "/v1/conversations/c/turns", json={"input": "Hello"}) as live:
        await live.until("text_delta")
        path = f"/v1/streams/{live.response.headers['x-stream-id']}/events"
        async with b.stream("GET", path) as elsewhere:
            await elsewhere.until("text_delta")
            assert (await b.client.delete("/v1/conversations/c")).status_code == httpx.codes.NO_CONTENT
            for reader in (elsewhere, live):
                with pytest.raises(CUT):
                    await reader.rest(PATIENCE)
    assert await mock.closed(1) == [0]
    assert (await a.client.get(path)).status_code == httpx.codes.NOT_FOUND
    assert await traces(database, '"c"', "Hello") == []
    await a.turn("c", "Begin anew")


async def test_a_conversation_that_keeps_nothing_loses_its_events_soon_after_their_end(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    settings: dict[str, Any] = {"FERMATA_ENABLE_CONVERSATIONAL_PERSISTENCE": "false"}
    server = await servers.start(database, mock.base_url, **settings)
    frames = await server.turn("c", f"Say {MARK}")
    assert MARK in json.dumps(frames[-2].data)
    await execute(database, "UPDATE streams SET ended_at = now() - interval '1 minute'")
    async with asyncio.timeout(30):
        while await traces(database, MARK):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    state = await server.get(f"/v1/streams/{frames[0].data['stream_id']}")
    assert (state["status"], state["final_response"]) == ("completed", None)
