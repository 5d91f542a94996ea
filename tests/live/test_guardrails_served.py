"""Guardrails as a client meets them: over HTTP, from a process that was told of them by its settings alone."""

import json

import pytest

from tests.guardrails.leaks import tables
from tests.live.quick import TOOL
from tests.mock_model import ModelServer
from tests.servers import Server, Servers

WORD = "xylograph"
PIECES = [{"text": "A xylo"}, {"text": "graph is "}, {"text": "a print. "}]


async def guarded(servers: Servers, database: str, mock: ModelServer, mode: str, **more: str) -> Server:
    patterns = json.dumps([WORD])
    settings = {"FERMATA_GUARDRAIL_DENY_PATTERNS": patterns, "FERMATA_GUARDRAIL_OUTPUT_MODE": mode, **more}
    return await servers.start(database, mock.base_url, **settings)


MODES = (
    "stream",
    "hold",
    pytest.param("sentence", marks=pytest.mark.slow),
    pytest.param("until_input_ok", marks=pytest.mark.slow),
)


@pytest.mark.parametrize("mode", MODES)
async def test_what_is_denied_is_refused_on_its_way_in_and_taken_back_on_its_way_out(
    servers: Servers, database: str, mock: ModelServer, mode: str
) -> None:
    server = await guarded(servers, database, mock, mode)
    refused = await server.client.post("/v1/conversations/in/turns", json={"input": f"What is a {WORD}?"})
    assert (refused.status_code, refused.json()["code"]) == (403, "GUARDRAIL_BLOCKED")
    assert refused.headers["content-type"] == "application/problem+json"
    assert (await server.client.get("/v1/conversations/in")).status_code == 404

    mock.script({"steps": [*PIECES, {"call": {"id": "c1", "name": TOOL["name"], "arguments": {}}}]})
    frames = await server.turn("out", "What is that?", tools=[TOOL])
    stream = frames[0].data["stream_id"]
    assert frames[-1].data["status"] == "blocked"
    assert frames[-2].data["code"] == "GUARDRAIL_BLOCKED"
    late = await server.client.post(
        f"/v1/streams/{stream}/tool-results", json={"results": [{"tool_call_id": "c1", "output": 1}]}
    )
    assert (late.status_code, late.json()["code"], late.json()["reason"]) == (409, "TOOL_ERROR", "blocked")

    await server.turn("out", "And now?")
    seen = [request["body"] for request in await mock.requests(2)]
    again = (await server.replay(stream)).decode()
    views = [await server.get(path) for path in (f"/v1/streams/{stream}", "/v1/conversations/out/messages")]
    for text in (json.dumps(seen[-1]), again, json.dumps(views), await tables(database)):
        assert WORD not in text
        assert "xylo" not in text
    assert (await server.client.get("/v1/conversations/out/pending-request")).status_code == 204
    if mode in {"hold", "sentence"}:
        assert "xylo" not in str(frames)
