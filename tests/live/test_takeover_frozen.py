"""A process is frozen beyond its lease and wakes up after another has taken over: it writes, sends and runs nothing."""

import asyncio
from signal import SIGCONT, SIGSTOP
from typing import Any

from tests.databases import rows
from tests.live.quick import LEASE, TAKEOVER_SECONDS, durable, follow, read_until_cut
from tests.mock_model import ModelServer
from tests.servers import Servers
from tests.sse import Frame, check_order, only

PIECES = 40


async def test_a_frozen_process_that_wakes_up_has_lost_everything_it_ran(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    a, b = await asyncio.gather(*(servers.start(database, mock.base_url, **LEASE) for _ in range(2)))
    said: list[dict[str, Any]] = [{"text": f"{n} "} for n in range(PIECES)]
    mock.script({"steps": [{"text": "begun "}, {"gate": "frozen"}, *said, {"call": {"name": "current_time"}}]})
    on_a: list[Frame] = []
    reading = asyncio.create_task(read_until_cut(a, "POST", "/v1/conversations/c/turns", on_a, json={"input": "Count"}))
    async with asyncio.timeout(TAKEOVER_SECONDS):
        while not any(frame.event == "text_delta" for frame in on_a):  # noqa: ASYNC110 - a state of the reader
            await asyncio.sleep(0.01)
    stream_id = on_a[0].data["stream_id"]
    await durable(database, stream_id, next(frame.n for frame in on_a if frame.event == "text_delta"))
    a.signal(SIGSTOP)
    mock.open("frozen")
    got: list[Frame] = []
    await follow(b, stream_id, got)
    assert only(got, "error").data["code"] == "TURN_INTERRUPTED"
    log = await rows(database, "SELECT fence, first_n, last_n FROM stream_events ORDER BY 1, 2")
    # The model has said all it had to say, a call included: it lies in the sockets, and A finds it when it wakes up.
    await mock.answered()
    a.signal(SIGCONT)
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
