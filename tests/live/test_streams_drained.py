"""SIGTERM: a process takes nothing new, lets its turns end, hands over the rest, and sends its readers elsewhere."""

import asyncio
from signal import SIGTERM
from typing import Any

import httpx
import pytest

from tests.live.quick import LEASE, follow, read_until_cut
from tests.mock_model import ModelServer
from tests.servers import CUT, PATIENCE, Server, Servers
from tests.sse import Frame, check_whole, only, text_of


async def test_a_draining_process_refuses_turns_ends_its_own_and_says_when_to_come_back(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    server = await servers.start(database, mock.base_url, FERMATA_DRAIN_GRACE_SECONDS="40")
    mock.script({"steps": [{"text": "It is "}, {"gate": "drained"}, {"text": "done"}]})
    async with server.stream("POST", "/v1/conversations/c/turns", json={"input": "Hello"}) as live:
        await live.until("text_delta")
        server.signal(SIGTERM)
        async with asyncio.timeout(PATIENCE):
            while (ready := await server.client.get("/readyz")).status_code == httpx.codes.OK:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert ready.json()["checks"]["accepting"] is False
        refused = await server.client.post("/v1/conversations/d/turns", json={"input": "Hello"})
        assert refused.status_code == httpx.codes.SERVICE_UNAVAILABLE
        assert int(refused.headers["retry-after"]) > 0
        # What runs can still be read, here too.
        path = f"/v1/streams/{live.response.headers['x-stream-id']}/events"
        async with server.stream("GET", path) as replay:
            await replay.until("text_delta")
            mock.open("drained")
            again = await replay.rest()
        frames = await live.rest()
        assert live.retry == 1000
    check_whole(frames)
    assert text_of(frames) == "It is done"
    assert [frame.raw for frame in again] == [frame.raw for frame in frames]
    assert await server.ended() == 0
    assert "Traceback" not in server.log


async def test_what_does_not_end_in_the_grace_is_handed_over_and_its_readers_are_cut(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    a, b = await asyncio.gather(
        *(servers.start(database, mock.base_url, FERMATA_DRAIN_GRACE_SECONDS="0.3", **LEASE) for _ in range(2))
    )
    mock.script({"steps": [{"hang": True}]})
    got: list[Frame] = []
    async with a.stream("POST", "/v1/conversations/c/turns", json={"input": "Hello"}) as live:
        await live.next()
        await mock.requests(1)
        a.signal(SIGTERM)
        with pytest.raises(CUT):
            await live.rest(PATIENCE)
        got += live.frames
        assert live.retry == 1000
    # Nothing of it had been seen: it is run again, and the one answer comes from there.
    await follow(b, got[0].data["stream_id"], got)
    assert text_of(got) == "You said: Hello"
    assert only(got, "end").data["status"] == "completed"
    assert await mock.closed(1) == [0]
    assert await a.ended() == 0


class Balancer:
    """Sends each call to one of the servers, in turn, as a load balancer that knows who is ready."""

    def __init__(self, servers: list[Server]) -> None:
        self.servers = servers
        self._next = 0

    def pick(self) -> Server:
        self._next += 1
        return self.servers[self._next % len(self.servers)]


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_rolling_restart_under_load_fails_no_turn_and_loses_no_event(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    grace = {"FERMATA_DRAIN_GRACE_SECONDS": "15"}
    first = [await servers.start(database, mock.base_url, **grace) for _ in range(2)]
    balancer = Balancer(list(first))
    steps: list[dict[str, Any]] = [step for n in range(15) for step in ({"text": f"{n} "}, {"wait": 0.03})]
    stop = asyncio.Event()
    ended: list[list[Frame]] = []

    async def talk(conversation: str) -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            mock.script({"steps": steps})
            got: list[Frame] = []
            while not (got and got[-1].event == "end"):
                server = balancer.pick()
                if got:
                    path = f"/v1/streams/{got[0].data['stream_id']}/events"
                    await read_until_cut(server, "GET", path, got, headers={"Last-Event-ID": got[-1].id})
                else:
                    body = {"input": f"Turn {turn}"}
                    await read_until_cut(server, "POST", f"/v1/conversations/{conversation}/turns", got, json=body)
                await asyncio.sleep(0.01)
            ended.append(got)

    talking = [asyncio.create_task(talk(f"chat-{number}")) for number in range(6)]
    async with asyncio.timeout(200):
        for old in first:
            already = len(ended)
            while len(ended) < already + 6:  # noqa: ASYNC110 - turns of other tasks
                await asyncio.sleep(0.05)
            balancer.servers.append(await servers.start(database, mock.base_url, **grace))
            # Taken out of the balancer only after the signal, as happens to one that looks at readiness.
            old.signal(SIGTERM)
            await asyncio.sleep(0.2)
            balancer.servers.remove(old)
            assert await old.ended() == 0
        stop.set()
        await asyncio.gather(*talking)
    assert len(ended) >= 12
    for frames in ended:
        check_whole(frames)
        assert frames[-1].data["status"] == "completed", frames[-2:]
        assert text_of(frames) == "".join(f"{n} " for n in range(15))
