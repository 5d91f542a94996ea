"""Whole stories over HTTP, on two processes: answers that come in parts, and answers that come too late."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.live.quick import LEASE, TOOL
from tests.mock_model import ModelServer
from tests.servers import Server, Servers
from tests.sse import Frame, only

STOCK: dict[str, Any] = {**TOOL, "name": "get_stock", "description": "Tell the price of a share"}
THREE: dict[str, Any] = {
    "steps": [
        {"call": {"id": "call_a", "name": "get_weather", "arguments": '{"city": "Rome"}', "index": 0}},
        {"call": {"id": "call_b", "name": "get_weather", "arguments": '{"city": "Bonn"}', "index": 1}},
        {"call": {"id": "call_c", "name": "get_stock", "arguments": '{"city": "Oslo"}', "index": 2}},
    ]
}
CALLS = ["call_a", "call_b", "call_c"]


async def paused(server: Server, mock: ModelServer, name: str, **more: Any) -> dict[str, Any]:
    """Bring a conversation to a pause of three calls; gives the request."""
    mock.script(THREE)
    frames = await server.turn(name, "What is the weather?", tools=[TOOL, STOCK], **more)
    request: dict[str, Any] = only(frames, "tool_call_request").data
    assert [call["id"] for call in request["tool_calls"]] == CALLS
    assert [call["name"] for call in request["tool_calls"]] == ["get_weather", "get_weather", "get_stock"]
    return {**request, "turn_id": await turn_of(server, request["stream_id"])}


async def turn_of(server: Server, stream_id: str) -> str:
    return str((await server.get(f"/v1/streams/{stream_id}"))["turn_id"])


def part(call: str, output: str) -> bytes:
    return json.dumps({"results": [{"tool_call_id": call, "output": output}], "partial": True}).encode()


async def post(server: Server, stream_id: str, body: bytes) -> httpx.Response:
    headers = {"content-type": "application/json"}
    return await server.client.post(f"/v1/streams/{stream_id}/tool-results", content=body, headers=headers)


def told(mock: ModelServer) -> list[tuple[str, str]]:
    """Give the results of the last request, in their order."""
    messages = mock.seen.requests[-1]["body"]["messages"]
    return [(message["tool_call_id"], message["content"]) for message in messages if message["role"] == "tool"]


@pytest.mark.timeout(120)
async def test_three_results_come_one_by_one_over_the_death_of_a_process_and_the_model_is_asked_once(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    a, b = await asyncio.gather(*(servers.start(database, mock.base_url, **LEASE) for _ in range(2)))
    request = await paused(a, mock, "parts")
    stream = request["stream_id"]
    first = await post(a, stream, part("call_b", "Bonn is wet"))
    assert (first.status_code, first.json()["missing"]) == (200, ["call_a", "call_c"])
    await a.kill()

    body = part("call_a", "Rome is warm")
    for _ in range(2):
        again = await post(b, stream, body)
        assert (again.status_code, again.json()["missing"]) == (200, ["call_c"])
        assert again.json() == {"pause_id": request["pause_id"], "received": CALLS[:2], "missing": ["call_c"]}
    other = await post(b, stream, part("call_a", "Rome is cold"))
    assert (other.status_code, other.json()["code"]) == (409, "SYS_INVALID_STATE")
    pending = await b.get("/v1/conversations/parts/pending-request")
    assert (pending["received"], pending["missing"]) == (CALLS[:2], ["call_c"])
    assert len(mock.seen.requests) == 1

    mock.script({"steps": [{"text": "Mild everywhere."}]})
    last = await post(b, stream, part("call_c", "Oslo is up"))
    assert last.headers["content-type"].startswith("text/event-stream")
    state = await b.get(f"/v1/streams/{stream}")
    assert (state["status"], state["turn_id"]) == ("completed", request["turn_id"])
    assert state["final_response"]["turn_id"] == request["turn_id"]
    assert state["final_response"]["final_response_text"] == "Mild everywhere."
    assert len(mock.seen.requests) == 2
    assert told(mock) == [("call_a", "Rome is warm"), ("call_b", "Bonn is wet"), ("call_c", "Oslo is up")]
    late = await post(b, stream, body)
    assert (late.status_code, late.json()["code"]) == (409, "TOOL_ERROR")
    assert len(mock.seen.requests) == 2
    assert [asked["violations"] for asked in mock.seen.requests if asked["violations"]] == []


async def resolved(frames: list[Frame]) -> list[dict[str, Any]]:
    """Give what the frames say of resolved pauses."""
    updates = [frame.data["updates"] for frame in frames if frame.event == "metadata_update"]
    return [update["pause_resolved"] for update in updates if "pause_resolved" in update]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("on_expiry", ["close", "continue"])
async def test_a_pause_runs_out_with_nobody_there_and_says_what_resolved_it(
    pair: tuple[Server, Server], model: ModelServer, on_expiry: str, name: str
) -> None:
    a, b = pair
    request = await paused(a, model, name, pause_ttl_seconds=6, on_expiry=on_expiry)
    stream = request["stream_id"]
    kept = await post(a, stream, part("call_b", "Bonn is wet"))
    assert kept.json()["missing"] == ["call_a", "call_c"]
    asked = len(model.seen.requests)
    model.script({"steps": [{"text": "I was told of Bonn alone."}]})

    # A second client only listens, on the other process; nobody answers.
    async with b.stream("GET", f"/v1/streams/{stream}/events", params={"follow": "true"}) as listening:
        frames = await listening.rest(60)
    over = {"close": "cancelled", "continue": "completed"}[on_expiry]
    assert await resolved(frames) == [{"pause_id": request["pause_id"], "by": "expired"}]
    assert (frames[-1].event, frames[-1].data["status"]) == ("end", over)
    assert len(model.seen.requests) == asked + (on_expiry == "continue")
    assert await b.get(f"/v1/conversations/{name}/pending-request") is None

    # A third one comes too late, wherever it asks.
    for server in pair:
        late = await post(server, stream, part("call_a", "Rome is warm"))
        assert (late.status_code, late.json()["code"], late.json()["reason"]) == (409, "TOOL_ERROR", "expired")
    resumed = await a.client.post(
        f"/v1/conversations/{name}/resume",
        json={"pause_id": request["pause_id"], "results": [{"tool_call_id": "call_a", "output": "warm"}]},
    )
    assert (resumed.status_code, resumed.json()["code"]) == (409, "SYS_INVALID_STATE")
    assert len(model.seen.requests) == asked + (on_expiry == "continue")

    if on_expiry == "close":
        model.seen.scripts.clear()
    answered = await b.turn(name, "And now?")
    assert answered[-1].data["status"] == "completed"
    outputs = dict(told(model))
    assert list(outputs) == CALLS
    assert outputs["call_b"] == "Bonn is wet"
    assert all("EXTERNAL_TOOL_NOT_RUN" in outputs[call] for call in ("call_a", "call_c"))
