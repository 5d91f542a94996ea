"""A process is away for longer than its lease and comes back after another has taken over: it writes, sends and runs
nothing more. It was stopped, or its event loop stood still, or the network between it and the database was gone.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from signal import SIGCONT, SIGSTOP, SIGUSR1
from typing import Any

import pytest

from tests.databases import rows
from tests.kill_points import KillPoints, kill_points
from tests.live.quick import LEASE, TAKEOVER_SECONDS, durable, follow, read_until_cut
from tests.mock_model import ModelServer
from tests.servers import Server, Servers
from tests.sse import Frame, check_order, only

PIECES = 40
BLOCKABLE = """
import signal, time
from pathlib import Path
from app.commands import cli

def stand_still(*_):
    Path("stands still").touch()
    while not Path("goes on").exists():
        time.sleep(0.05)

signal.signal(signal.SIGUSR1, stand_still)
cli(["serve"])
"""
"""A service whose event loop stands still from a signal on, as with a call that blocks, until a file appears."""

WAYS = ("frozen", pytest.param("blocked", marks=pytest.mark.slow), pytest.param("parted", marks=pytest.mark.slow))


@dataclass(frozen=True, slots=True)
class Absent:
    """A process that can be away and come back."""

    server: Server
    leave: Callable[[], None]
    is_away: Callable[[], bool]
    come_back: Callable[[], None]


async def absent(way: str, servers: Servers, database: str, model: str, points: KillPoints) -> Absent:
    if way == "frozen":
        server = await servers.start(database, model, **LEASE)
        return Absent(server, partial(server.signal, SIGSTOP), lambda: True, partial(server.signal, SIGCONT))
    if way == "blocked":
        server = await servers.start(database, model, program=("-c", BLOCKABLE), **LEASE)
        still, on = server.home / "stands still", server.home / "goes on"
        return Absent(server, partial(server.signal, SIGUSR1), still.exists, on.touch)
    server = await servers.start(points.url, model, **LEASE)
    return Absent(server, points.part, lambda: True, points.join)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(TAKEOVER_SECONDS):
        while not condition():  # noqa: ASYNC110 - states of other processes
            await asyncio.sleep(0.02)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("way", WAYS)
async def test_a_process_that_comes_back_after_its_lease_has_lost_everything_it_ran(
    servers: Servers, database: str, mock: ModelServer, way: str
) -> None:
    async with kill_points(database) as points:
        away, b = await asyncio.gather(
            absent(way, servers, database, mock.base_url, points), servers.start(database, mock.base_url, **LEASE)
        )
        a = away.server
        said: list[dict[str, Any]] = [{"text": f"{n} "} for n in range(PIECES)]
        mock.script({"steps": [{"text": "begun "}, {"gate": "away"}, *said, {"call": {"name": "current_time"}}]})
        on_a: list[Frame] = []
        path = "/v1/conversations/c/turns"
        reading = asyncio.create_task(read_until_cut(a, "POST", path, on_a, json={"input": "Count"}))
        await until(lambda: any(frame.event == "text_delta" for frame in on_a))
        stream_id, heard = on_a[0].data["stream_id"], len(on_a)
        await durable(database, stream_id, next(frame.n for frame in on_a if frame.event == "text_delta"))
        away.leave()
        await until(away.is_away)
        got: list[Frame] = []
        await follow(b, stream_id, got)
        assert only(got, "error").data["code"] == "TURN_INTERRUPTED"
        log = await rows(database, "SELECT fence, first_n, last_n FROM stream_events ORDER BY 1, 2")
        # The model says all it has to say, a call included, to a process that no longer holds the turn.
        mock.open("away")
        await mock.answered()
        assert len(on_a) == heard
        away.come_back()
        async with asyncio.timeout(TAKEOVER_SECONDS):
            assert await reading == "end"
        check_order(on_a)
        assert [frame.event for frame in on_a].count("end") == 1
        assert [frame.raw for frame in on_a] == [frame.raw for frame in got]
        assert await rows(database, "SELECT fence, first_n, last_n FROM stream_events ORDER BY 1, 2") == log
        assert len(mock.seen.requests) == 1
        await a.says("lease.lost")
        # It has a new name, and takes part again.
        frames = await a.turn("c", "And now?")
        assert frames[-1].data["status"] == "completed"
        assert len(await rows(database, "SELECT 1 FROM conversations WHERE running_operation IS NOT NULL")) == 0
