"""The database restarts, or is away for ten seconds, in the middle of turns: they go on, and nobody's turn is taken."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.store.embedded.supervisor import EmbeddedPostgres
from app.store.migrate import upgrade_async
from tests.databases import rows
from tests.live.quick import LEASE, TOOL
from tests.mock_model import ModelServer
from tests.postgres import passable_folder
from tests.servers import Servers
from tests.sse import check_whole, only, text_of

pytestmark = pytest.mark.slow


@pytest.fixture
async def postgres() -> AsyncIterator[EmbeddedPostgres]:
    """A server of the test's own, which it may stop and start."""
    with passable_folder() as folder:
        server = EmbeddedPostgres(folder / "data", fast=True)
        await server.start()
        try:
            await upgrade_async(server.dsn)
            yield server
        finally:
            await server.stop()


@pytest.mark.parametrize("away", [0, pytest.param(10, marks=pytest.mark.slow)])
async def test_a_turn_survives_the_databases_restart_and_is_not_taken_over(
    servers: Servers, postgres: EmbeddedPostgres, mock: ModelServer, away: int
) -> None:
    a, b = await asyncio.gather(*(servers.start(postgres.dsn, mock.base_url, **LEASE) for _ in range(2)))
    said: list[dict[str, Any]] = [{"text": f"{n} "} for n in range(50)]
    mock.script({"steps": [{"text": "begun "}, {"wait": away + 4}, *said]})
    async with a.stream("POST", "/v1/conversations/c/turns", json={"input": "Count"}) as live:
        await live.until("text_delta")
        path = f"/v1/streams/{live.response.headers['x-stream-id']}/events"
        async with b.stream("GET", path) as elsewhere:
            await elsewhere.until("text_delta")
            await postgres.stop()
            refused = await b.client.get("/v1/conversations/c")
            assert (refused.status_code, refused.json()["code"]) == (503, "SYS_DATABASE_ERROR")
            assert "retry-after" in refused.headers
            await asyncio.sleep(away)
            await postgres.start()
            frames = await live.rest(away + 30)
            followed = await elsewhere.rest(30)
    check_whole(frames)
    assert frames[-1].data["status"] == "completed"
    assert text_of(frames) == "begun " + "".join(f"{n} " for n in range(50))
    assert [frame.raw for frame in followed] == [frame.raw for frame in frames]
    assert len(mock.seen.requests) == 1
    assert await rows(postgres.dsn, "SELECT 1 FROM replicas WHERE dead") == []
    # The pools have recovered by themselves.
    for server in (a, b):
        assert (await server.turn("c", "And now?"))[-1].data["status"] == "completed"


async def test_an_outcome_waits_for_the_database_and_is_not_announced_before(
    servers: Servers, postgres: EmbeddedPostgres, mock: ModelServer
) -> None:
    server = await servers.start(postgres.dsn, mock.base_url, FERMATA_HEARTBEAT_SECONDS="0.2")
    call = {"call": {"name": "get_weather", "arguments": {"city": "Berlin"}}}
    mock.script({"steps": [{"text": "Let me see. "}, {"wait": 1}, call]})
    body = {"input": "What is the weather?", "tools": [TOOL]}
    async with server.stream("POST", "/v1/conversations/c/turns", json=body) as live:
        await live.until("text_delta")
        await postgres.stop()
        await mock.answered()
        seen = len(live.comments)
        waiting = asyncio.create_task(live.until("tool_call_request", 30))
        async with asyncio.timeout(30):
            while len(live.comments) < seen + 3:  # noqa: ASYNC110 - what the reader hears
                await asyncio.sleep(0.05)
        assert not waiting.done()
        await postgres.start()
        request = await waiting
        # In the instant in which it is announced, it can be found.
        pending = await server.get("/v1/conversations/c/pending-request")
        assert pending["pause_id"] == request.data["pause_id"]
        frames = await live.rest()
    check_whole(frames)
    assert only(frames, "end").data["status"] == "paused"


async def test_a_turn_that_comes_while_the_database_is_away_is_refused(
    servers: Servers, postgres: EmbeddedPostgres, mock: ModelServer
) -> None:
    server = await servers.start(postgres.dsn, mock.base_url)
    await postgres.stop()
    refused = await server.client.post("/v1/conversations/c/turns", json={"input": "Hello"}, timeout=30)
    assert (refused.status_code, refused.json()["code"]) == (503, "SYS_DATABASE_ERROR")
    assert (await server.client.get("/readyz")).status_code == 503
    await postgres.start()
    assert (await server.turn("c", "Hello"))[-1].data["status"] == "completed"
    assert len(mock.seen.requests) == 1
