"""A stream that runs on one process is followed on another, left and joined anywhere, and never told twice."""

import asyncio
import random
from itertools import product
from statistics import median, quantiles
from typing import Any

import httpx
import pytest

from tests.databases import execute
from tests.live.quick import TOOL, busy, follow, read_until_cut
from tests.mock_model import ModelServer
from tests.requirements import requirement
from tests.servers import CUT, PATIENCE, LiveStream, Server, Servers
from tests.sse import Frame, check_order, check_whole, frames_of, only, text_of

Pair = tuple[Server, Server]


async def two(servers: Servers, database: str, mock: ModelServer, **settings: str) -> list[Server]:
    return await asyncio.gather(*(servers.start(database, mock.base_url, **settings) for _ in range(2)))


async def test_a_stream_is_followed_on_another_process_while_it_runs_and_gives_the_same_bytes(
    pair: Pair, model: ModelServer
) -> None:
    await check_followed(*pair, model)


@pytest.mark.slow
async def test_a_stream_is_followed_on_another_process_that_only_looks(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    a, b = await two(servers, database, mock, FERMATA_WAKEUPS="poll")
    await check_followed(a, b, mock)


async def check_followed(a: Server, b: Server, mock: ModelServer) -> None:
    mock.script({"steps": [{"text": "first "}, {"gate": "told"}, *({"text": f"{n} "} for n in range(20))]})
    on_b: list[Frame] = []
    async with a.stream("POST", "/v1/conversations/followed/turns", json={"input": "Count"}) as live:
        stream_id = live.response.headers["x-stream-id"]
        following = asyncio.create_task(read_until_cut(b, "GET", f"/v1/streams/{stream_id}/events", on_b))
        first = await live.until("text_delta")
        # The other process tells of it before the turn has gone on.
        async with asyncio.timeout(30):
            while not (on_b and on_b[-1].id == first.id):  # noqa: ASYNC110 - a state of the other reader
                await asyncio.sleep(0.005)
        assert len(live.frames) == len(on_b)
        mock.open("told")
        on_a = await live.rest()
    assert await following == "end"
    check_whole(on_a)
    assert [frame.raw for frame in on_b] == [frame.raw for frame in on_a]
    assert (await b.get(f"/v1/streams/{stream_id}"))["status"] == "completed"


LAG_SECONDS = 0.25


@pytest.mark.slow
async def test_on_another_process_a_stream_is_heard_less_than_a_quarter_of_a_second_later(
    pair: Pair, model: ModelServer
) -> None:
    a, b = pair
    model.script(
        {"steps": [step for n in range(100) for step in ({"text": f"{n} "}, {"wait": 0.07})]}
    )  # slower than is gathered
    loop = asyncio.get_running_loop()

    async def heard(live: LiveStream) -> dict[str, float]:
        times = {}
        while (frame := await live.next()).event != "end":
            times[frame.id] = loop.time()
        return times

    async with a.stream("POST", "/v1/conversations/lag/turns", json={"input": "Count"}) as here:
        await here.next()
        async with b.stream("GET", f"/v1/streams/{here.response.headers['x-stream-id']}/events") as there:
            await there.next()
            on_a, on_b = await asyncio.gather(heard(here), heard(there))
    lags = sorted(on_b[frame] - at for frame, at in on_a.items() if frame in on_b)
    assert len(lags) >= 100
    p95 = quantiles(lags, n=20)[-1]
    print(f"\nlater by {median(lags) * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms")  # noqa: T201 - what was measured
    assert p95 < LAG_SECONDS * busy()


@requirement("R4", "R91", "R92")
async def test_a_stream_stays_open_over_its_pauses_and_closes_behind_the_last_end(
    pair: Pair, model: ModelServer
) -> None:
    a, b = pair
    call: dict[str, Any] = {"name": "get_weather", "arguments": {"city": "Berlin"}}
    model.script({"steps": [{"call": {**call, "id": "call_1"}}]}, {"steps": [{"call": {**call, "id": "call_2"}}]})
    paused = await a.turn("open", "What is the weather?", tools=[TOOL])
    assert [frame.event for frame in paused[-2:]] == ["tool_call_request", "end"]
    assert paused[-2].data["requires_external_tool_result"] is True
    stream_id = paused[0].data["stream_id"]
    async with b.stream("GET", f"/v1/streams/{stream_id}/events", params={"follow": "true"}) as live:
        while (await live.next()).event != "end":
            pass
        again = await a.results(stream_id, {"tool_call_id": "call_1", "output": "rain"})
        assert only(again, "end").data["status"] == "paused"
        assert only(again, "tool_call_request").data["tool_calls"][0]["id"] == "call_2"
        await live.until("end")
        assert (await b.get(f"/v1/streams/{stream_id}"))["status"] == "paused"
        done = await b.results(stream_id, {"tool_call_id": "call_2", "output": "sun"})
        followed = await live.rest()
    check_order(followed)
    assert [frame.raw for frame in followed] == [frame.raw for frame in (*paused, *again, *done)]
    gone = await a.client.get(f"/v1/streams/{stream_id}/events", headers={"Last-Event-ID": followed[-1].id})
    assert gone.status_code == httpx.codes.NO_CONTENT


async def test_places_that_the_stream_never_had_are_refused_and_the_header_wins(pair: Pair) -> None:
    a, b = pair
    mine, another = await a.turn("mine", "Hello"), await a.turn("another", "Hello")
    path = f"/v1/streams/{mine[0].data['stream_id']}/events"

    async def ask(server: Server, **headers: str) -> httpx.Response:
        return await server.client.get(path, headers=headers, params={"after": mine[1].id})

    for server in (a, b):
        refused = await ask(server, **{"Last-Event-ID": another[0].id})
        assert (refused.status_code, refused.json()["code"]) == (400, "SYS_PARSING_ERROR")
        assert (await ask(server, **{"Last-Event-ID": "7"})).status_code == httpx.codes.BAD_REQUEST
        assert (await ask(server, **{"Last-Event-ID": f"{mine[0].fence}-999999"})).status_code == 204
        assert [frame.raw for frame in frames_of((await ask(server)).content)] == [frame.raw for frame in mine[2:]]
        last = await ask(server, **{"Last-Event-ID": mine[4].id})
        assert [frame.raw for frame in frames_of(last.content)] == [frame.raw for frame in mine[5:]]


@pytest.mark.slow
@pytest.mark.timeout(200)
async def test_two_thousand_events_arrive_once_each_whatever_becomes_of_the_readers_connections(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    a, b = await two(servers, database, mock)
    pieces: list[dict[str, Any]] = [{"text": f"{n} "} for n in range(2000)]
    for place in range(len(pieces), 0, -20):
        pieces.insert(place, {"wait": 0.02})
    mock.script({"steps": pieces})
    started = await a.client.post(
        "/v1/conversations/c/turns", json={"input": "Count"}, headers={"Prefer": "respond-async"}
    )
    assert started.status_code == httpx.codes.ACCEPTED
    stream_id = started.json()["stream_id"]

    async def wander(seed: int) -> list[Frame]:
        chance = random.Random(seed)  # noqa: S311 - a test's own dice
        got: list[Frame] = []
        while not (got and got[-1].event == "end"):
            server = chance.choice((a, b))
            place = got[-1].id if got else "0-0"
            how: dict[str, Any] = chance.choice(({"headers": {"Last-Event-ID": place}}, {"params": {"after": place}}))
            async with server.stream("GET", f"/v1/streams/{stream_id}/events", **how) as live:
                for _ in range(chance.randrange(1, 600)):
                    got.append(await live.next())
                    if got[-1].event == "end":
                        break
        return got

    async with asyncio.timeout(100):
        readers = await asyncio.gather(*(wander(seed) for seed in range(8)))
    for got in readers:
        check_whole(got)
        assert [frame.raw for frame in got] == [frame.raw for frame in readers[0]]
    assert text_of(readers[0]) == "".join(f"{n} " for n in range(2000))
    await check_later((a, b), database, stream_id, readers[0])


async def check_later(pair: Pair, database: str, stream_id: str, whole: list[Frame]) -> None:
    """Check what readers are told who come after the end."""
    # After the end, one connection is enough to learn of it, from any place and on any process.
    path = f"/v1/streams/{stream_id}/events"
    places = random.Random(5).sample(range(len(whole)), 20)  # noqa: S311 - a test's own dice
    for place, server in product([0, *places, len(whole)], pair):
        after = {"after": whole[place - 1].id if place else "0-0"}
        late: list[Frame] = []
        how = await read_until_cut(server, "GET", path, late, params=after)
        assert how == ("end" if place < len(whole) else "nothing")
        assert [frame.raw for frame in late] == [frame.raw for frame in whole[place:]]
    # An id of another turn is refused, and once the events are gone their stream's end is all that is told.
    other = await pair[1].turn("another", "Hello")
    for server in pair:
        foreign = await server.client.get(path, headers={"Last-Event-ID": other[0].id})
        assert foreign.status_code == httpx.codes.BAD_REQUEST
    await execute(database, "UPDATE streams SET ended_at = now() - interval '25 hours'")
    for server in pair:
        gone = await when_gone(server, path, whole[7].id)
        assert (gone.status_code, gone.json()["code"]) == (410, "SYS_EVENTS_EXPIRED")
        assert (gone.json()["stream"]["status"], gone.json()["stream"]["stream_id"]) == ("completed", stream_id)


async def test_a_turn_can_be_started_and_left(pair: Pair, model: ModelServer) -> None:
    a, b = pair
    started = await a.client.post("/v1/turns", json={"input": "Hello"}, headers={"Prefer": "respond-async"})
    assert started.status_code == httpx.codes.ACCEPTED
    assert started.headers["preference-applied"] == "respond-async"
    got: list[Frame] = []
    await follow(b, started.json()["stream_id"], got)
    assert text_of(got) == "You said: Hello"


async def when_gone(server: Server, path: str, place: str) -> httpx.Response:
    """Ask for events until they are refused: retention looks now and then, and cuts who is reading them."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                answer = await server.client.get(path, headers={"Last-Event-ID": place})
            except CUT:
                continue
            if not answer.is_success:
                return answer
            await asyncio.sleep(0.1)
