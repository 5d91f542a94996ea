"""One token at a time: the model sends the next when the client has read the one before.

No two tokens share a read or a wake-up then, whatever else the machine does: a paced model on a busy one is cheaper by
as much as its tokens wait for each other.
"""

import asyncio
import statistics
from collections.abc import Callable
from typing import Any

from tests.bench.load import post
from tests.bench.measures import Bench, Row
from tests.bench.model import HEAD, LAST, TAIL, TOKEN, Model
from tests.bench.processes import APART, Process, fermata, relay

SHORT, LONG = 10, 1010


class ClosedModel(Model):
    """Answers `bench-<tokens>-0`, one token for each `step`."""

    def __init__(self, began: Callable[["ClosedModel"], None]) -> None:
        super().__init__()
        self._began = began
        self._left = 0

    def _answer(self, request: dict[str, Any]) -> None:
        self._left = int(request["model"].split("-")[1])
        self._began(self)
        self._write(HEAD)
        self.step()

    def step(self) -> None:
        """Send the next token, or behind the last one the end."""
        self._write(TOKEN if self._left else TAIL + LAST)
        self._left -= 1


async def closed(bench: Bench) -> list[Row]:
    """CPU of the server process for each token of one long turn, and of the relay's."""
    answering: list[ClosedModel] = []
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: ClosedModel(answering.append), "127.0.0.1", 0)
    async with listener:
        model = Process(0, listener.sockets[0].getsockname()[1])
        async with relay(model) as limit, fermata(model, bench.database, **APART) as server:
            here = Bench(server, limit, model, bench.database)

            def step() -> None:
                answering[0].step()

            async def run(tokens: int, *, relayed: bool) -> None:
                answering.clear()
                body = {"model": f"bench-{tokens}-0", "stream": True, "messages": [{"role": "user", "content": "Go."}]}
                if relayed:
                    await post(limit.address, "/v1/chat/completions", body, on_token=step)
                else:
                    await here.turn(f"bench-{tokens}-0", on_token=step)

            async def each(process: Process, *, relayed: bool) -> float:
                figures = []
                for _ in range(7):
                    begun = process.cpu()
                    await run(SHORT, relayed=relayed)
                    middle = process.cpu()
                    await run(LONG, relayed=relayed)
                    figures.append((process.cpu() - middle - (middle - begun)) * 1e6 / (LONG - SHORT))
                return statistics.median(figures)

            await run(LONG, relayed=False)
            theirs = await each(limit, relayed=True)
            ours = await each(server, relayed=False)
    return [
        Row("one token at a time: server CPU per token", ours, "us", "<= 200 us", {"relay": theirs}),
        Row("one token at a time: times the relay", ours / theirs, "x", "<= 2.4 x"),
    ]
