"""Behind nginx with its defaults, and through PgBouncer in transaction mode."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
import pytest

from app.store.embedded.supervisor import EmbeddedPostgres
from tests.live.quick import LEASE, TOOL, busy, follow
from tests.live.test_streams_outage import postgres as postgres  # noqa: PLC0414 - a fixture of that module
from tests.mock_model import ModelServer
from tests.postgres import passable_folder
from tests.proxies import nginx, pgbouncer
from tests.servers import PATIENCE, LiveStream, Servers
from tests.sse import Frame, check_whole, text_of

TURNS = "/v1/conversations/c/turns"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users may pass through, since a proxy may become one of them."""
    with passable_folder() as made:
        yield made


async def test_behind_nginx_events_arrive_one_by_one(
    servers: Servers, database: str, mock: ModelServer, folder: Path
) -> None:
    server = await servers.start(database, mock.base_url, FERMATA_HEARTBEAT_SECONDS="0.3")
    said: list[dict[str, Any]] = [step for n in range(5) for step in ({"text": f"{n} "}, {"gate": f"{n} was read"})]
    mock.script({"steps": [{"gate": "silence was heard"}, *said]})
    async with (
        nginx(folder, server.root) as root,
        httpx.AsyncClient(base_url=root, trust_env=False, timeout=40, headers={"Accept-Encoding": "gzip"}) as client,
        client.stream("POST", TURNS, json={"input": "Count"}) as response,
    ):
        assert "content-encoding" not in response.headers
        live = LiveStream(response)
        await live.next()
        reading = asyncio.create_task(live.until("text_delta"))
        async with asyncio.timeout(PATIENCE):
            while live.comments.count("ping") < 2:  # noqa: ASYNC110 - what the reader hears
                await asyncio.sleep(0.05)
        mock.open("silence was heard")
        await reading
        for n in range(4):
            # The model says nothing more before this much has arrived.
            mock.open(f"{n} was read")
            await live.until("text_delta")
        assert mock.seen.answered == []
        mock.open("4 was read")
        frames = await live.rest()
    check_whole(frames)
    assert text_of(frames) == "0 1 2 3 4 "


SILENCE = 60.0
LIST_SECONDS = 0.2
FIRST_BYTE_SECONDS = 0.1


async def timed(calls: int, call: Callable[[int], Awaitable[None]]) -> list[float]:
    """Make calls one after another, and give how long each took, in order of length."""
    loop = asyncio.get_running_loop()
    took = []
    for number in range(calls):
        began = loop.time()
        await call(number)
        took.append(loop.time() - began)
    return sorted(took)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_two_hundred_silent_streams_behind_nginx_outlast_a_restart_of_the_database(
    servers: Servers, postgres: EmbeddedPostgres, mock: ModelServer, folder: Path
) -> None:
    settings = {"FERMATA_DATABASE_POOL_SIZE": "5", "FERMATA_HEARTBEAT_SECONDS": "4"}
    server = await servers.start(postgres.dsn, mock.base_url, **settings)
    limits = httpx.Limits(max_connections=400)
    async with (
        nginx(folder, server.root, "proxy_read_timeout 10s;") as root,
        httpx.AsyncClient(base_url=root, trust_env=False, timeout=150, limits=limits) as client,
    ):

        async def talk(number: int) -> list[Frame]:
            path = f"/v1/conversations/chat-{number}/turns"
            async with client.stream("POST", path, json={"input": "Hello"}) as response:
                assert response.status_code == httpx.codes.OK
                return await LiveStream(response).rest(150)

        for _ in range(200):
            mock.script({"steps": [{"wait": SILENCE}, {"text": "At "}, {"text": "last"}]})
        talking: list[asyncio.Task[list[Frame]]] = []
        async with asyncio.timeout(60):
            while len(talking) < 200:
                talking += [asyncio.create_task(talk(number)) for number in range(len(talking), len(talking) + 10)]
                while len(mock.seen.requests) < len(talking):  # noqa: ASYNC110 - the server asks
                    await asyncio.sleep(0.02)

        async def list_them(_: int) -> None:
            listed = await client.get("/v1/conversations")
            assert listed.status_code == httpx.codes.OK
            assert len(listed.json()["items"]) == 50

        async def begin_one_more(number: int) -> None:
            async with client.stream("POST", f"/v1/conversations/more-{number}/turns", json={"input": "Hello"}) as one:
                await LiveStream(one).next()

        lists, first_bytes = await timed(100, list_them), await timed(20, begin_one_more)
        await postgres.stop()
        await postgres.start()
        lists += await timed(20, list_them)
        for frames in await asyncio.gather(*talking):
            check_whole(frames)
            assert frames[-1].data["status"] == "completed"
            assert text_of(frames) == "At last"
    p95, first = quantiles(lists, n=20)[-1], quantiles(first_bytes, n=20)[-1]
    print(  # noqa: T201 - what was measured
        f"\nbeside 200 open streams: list p95 {p95 * 1000:.0f} ms, median {median(lists) * 1000:.0f} ms;"
        f" first byte p95 {first * 1000:.0f} ms, median {median(first_bytes) * 1000:.0f} ms"
    )
    assert p95 < LIST_SECONDS * busy()
    assert median(first_bytes) < FIRST_BYTE_SECONDS * busy()
    # Those that came on top may have found every place at the provider taken.
    assert len(mock.seen.requests) >= 200


@pytest.mark.parametrize("wakeups", [pytest.param("poll", marks=pytest.mark.slow), "pg"])
async def test_through_pgbouncer_in_transaction_mode_everything_works(
    servers: Servers, database: str, mock: ModelServer, folder: Path, wakeups: str
) -> None:
    settings = {**LEASE, "FERMATA_DATABASE_POOLER": "transaction", "FERMATA_WAKEUPS": wakeups}
    if wakeups == "pg":
        settings["FERMATA_LISTEN_DATABASE_URL"] = database
    async with pgbouncer(folder, database) as pooled:
        a, b = await asyncio.gather(*(servers.start(pooled, mock.base_url, **settings) for _ in range(2)))
        turns = [a.turn(f"chat-{number}", "Hello") for number in range(12)]
        turns += [b.turn(f"chat-{number}", "Hello") for number in range(12, 24)]
        for frames in await asyncio.gather(*turns):
            check_whole(frames)
            assert text_of(frames) == "You said: Hello"
        paused = await a.turn("c", "What is the weather?", tools=[TOOL])
        pending = await b.get("/v1/conversations/c/pending-request")
        mock.script({"steps": [{"text": "It is "}, {"wait": 1}, {"text": "raining"}]})
        stream_id = pending["stream_id"]
        got: list[Frame] = []
        result = {"tool_call_id": pending["tool_calls"][0]["id"], "output": "rain"}
        done, _ = await asyncio.gather(b.results(stream_id, result), follow(a, stream_id, got))
        assert [frame.raw for frame in got[: len(paused)]] == [frame.raw for frame in paused]
        if len(got) > len(paused):
            assert [frame.raw for frame in got[len(paused) :]] == [frame.raw for frame in done]
        assert text_of(done) == "It is raining"
        await a.kill()
        await b.kill()
