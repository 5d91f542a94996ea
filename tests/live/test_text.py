"""Text of every kind through a real server: kept byte for byte, or refused clearly, and erased without a trace."""

import json
from typing import Any, Final

import httpx
import pytest

from tests.databases import rows
from tests.mock_model import ModelServer
from tests.servers import Server, Servers
from tests.sse import check_whole, frames_of, only, text_of

ROOMY: Final = {"FERMATA_DEFAULT_CONTEXT_WINDOW": "20000000"}
MARK: Final = "Zebrafinch"
LITERAL: Final = (
    f'{MARK} literal \\u0416 {{"a": [1, 2]}} null \\n \u05e9\u05dc\u05d5\u05dd\u200f \u202eabc\u202c e\u0301 \U0001f600'
)
HARSH: Final = f"{LITERAL} nul:\x00 high:\ud83d low:\ude00 end"
KEPT: Final = f"{LITERAL} nul:\ufffd high:\ufffd low:\ufffd end"
TOOL: Final[dict[str, Any]] = {"name": "look_up", "description": f"Looks \\u0416 up {LITERAL}"}


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


async def post(server: Server, path: str, body: object) -> httpx.Response:
    """Post a body as JSON in ASCII, so that NUL and lone surrogates are escapes, as clients write them."""
    content = body if isinstance(body, str) else json.dumps(body)
    return await server.client.post(path, content=content, headers={"Content-Type": "application/json"})


def delta(**said: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": said, "finish_reason": None}
    return {"event": {"id": "x", "object": "chat.completion.chunk", "model": "mock", "choices": [choice]}}


async def test_text_is_kept_through_turn_pause_restart_and_replay_and_erased_without_a_trace(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    arguments = json.dumps({"q": HARSH, "\x00key": LITERAL})
    mock.script(
        {"steps": [{"call": {"id": "c1", "name": "look_up", "arguments": arguments, "pieces": 7}}]},
        {"steps": [delta(content=f"{LITERAL} \ud83d"), delta(content="\ude00 \x00 \ud800"), delta(content=" done")]},
    )
    server = await servers.start(database, mock.base_url, **ROOMY)
    path = "/v1/conversations/texts/turns"
    response = await post(server, path, {"input": HARSH, "tools": [TOOL], "user_context": {"a": HARSH}})
    assert response.status_code == 200
    assert response.headers["x-text-replaced"] == "true"
    first = frames_of(response.content)
    check_whole(first)
    request = only(first, "tool_call_request").data
    assert request["tool_calls"][0]["arguments"] == {"q": KEPT, "\ufffdkey": LITERAL}

    stream = response.headers["x-stream-id"]
    output = {"text": HARSH, "deep": json.loads(deep(60)), "number": 12345678901234567890, "\ud800": LITERAL}
    response = await post(
        server, f"/v1/streams/{stream}/tool-results", {"results": [{"tool_call_id": "c1", "output": output}]}
    )
    assert response.status_code == 200
    second = frames_of(response.content)
    assert text_of(second) == f"{LITERAL} \U0001f600 \ufffd \ufffd done"
    live = b"".join(frame.raw for frame in [*first, *second])

    told = [request["body"]["messages"] for request in await mock.requests(2)]
    assert told[0][1]["content"] == KEPT
    called = json.loads(told[1][2]["tool_calls"][0]["function"]["arguments"])
    assert called == {"q": KEPT, "\ufffdkey": LITERAL}
    kept = {"text": KEPT, "deep": json.loads(deep(60)), "number": 12345678901234567890, "\ufffd": LITERAL}
    assert json.loads(told[1][3]["content"]) == kept

    await server.kill()
    server = await servers.start(database, mock.base_url, **ROOMY)
    assert await server.replay(stream) == live
    page = await server.get("/v1/conversations/texts/messages")
    assert page["items"][0]["content"] == KEPT
    assert page["items"][3]["content"] == f"{LITERAL} \U0001f600 \ufffd \ufffd done"
    await server.turn("texts", "Again.")
    assert (await mock.requests(3))[2]["body"]["messages"][1:4] == told[1][1:4]

    assert await _traces(database) != []
    gone = await server.client.delete("/v1/conversations/texts")
    assert gone.is_success
    assert await _traces(database) == []
    assert MARK not in server.log


async def test_what_is_too_large_or_too_deep_is_refused_and_the_pause_stays(
    pair: tuple[Server, Server], model: ModelServer
) -> None:
    model.script({"steps": [{"call": {"id": "c1", "name": "look_up", "arguments": "{}"}}]})
    server = pair[0]
    refused = await post(server, "/v1/conversations/big/turns", {"input": "Hi", "tools": [{"name": "look\x00up"}]})
    assert (refused.status_code, refused.json()["code"]) == (422, "SYS_VALIDATION_ERROR")
    paused = await server.turn("big", "Hi", tools=[TOOL])
    path = f"/v1/streams/{only(paused, 'tool_call_request').data['stream_id']}/tool-results"
    head, tail = '{"results": [{"tool_call_id": "c1", "output": ', "}]}"
    for output, status, code in (
        (deep(2_000), 422, "SYS_VALIDATION_ERROR"),
        (deep(200_000), 422, "SYS_VALIDATION_ERROR"),
        (f'"{"x" * (5 << 20)}"', 413, "SYS_PAYLOAD_TOO_LARGE"),
        (f'"{"x" * (20 << 20)}"', 413, "SYS_PAYLOAD_TOO_LARGE"),
    ):
        response = await post(server, path, f"{head}{output}{tail}")
        assert (response.status_code, response.json()["code"]) == (status, code)
    pending = await server.get("/v1/conversations/big/pending-request")
    assert pending["missing"] == ["c1"]
    done = await server.results(pending["stream_id"], {"tool_call_id": "c1", "output": "ok"})
    assert done[-1].data["status"] == "completed"


@pytest.mark.slow
async def test_a_message_of_four_mebibytes_is_told_as_it_is_where_the_model_can_read_it(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    text = "\u65e5\u672c\u8a9e \U0001f600 " * (4 * 2**20 // 15)
    server = await servers.start(database, mock.base_url, **ROOMY)
    mock.script({"steps": [{"text": "Read."}]})
    done = await server.turn("long", text)
    assert text_of(done) == "Read."
    assert (await mock.requests(1))[0]["body"]["messages"][1]["content"] == text
    await server.kill()
    small = await servers.start(database, mock.base_url)
    refused = await post(small, "/v1/conversations/other/turns", {"input": text})
    assert refused.status_code == 413
    assert "does not fit into the window of openai:mock" in refused.json()["detail"]
    mock.script({"steps": [{"text": "Still here."}]})
    assert text_of(await small.turn("long", "And now?")) == "Still here."
    assert [message["content"] for message in (await mock.requests(2))[1]["body"]["messages"][1:]] == [
        "(The messages begin here.)",
        "Read.",
        "And now?",
    ]


async def _traces(database: str) -> list[str]:
    """Give the tables in which the mark stands, as text or inside bytes."""
    tables = await rows(database, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    found = []
    for (table,) in tables:
        texts = await rows(database, f'SELECT t::text AS whole FROM "{table}" t')  # noqa: S608 - a table of ours
        marks = (MARK, MARK.encode().hex())
        if any(mark in row["whole"] for row in texts for mark in marks):
            found.append(table)
    return found
