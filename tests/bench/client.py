"""The client of models by itself: its CPU for each chunk, and how soon a cancel closes the socket of a silent model."""

import asyncio
import statistics
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from time import process_time

from app.domain.messages import Message
from app.providers.base import ModelRequest, TextPiece
from app.providers.chat import ChatProvider
from app.providers.http import ModelHttp
from tests.bench.load import WORD
from tests.bench.measures import Bench, Row
from tests.mock_model import ModelServer


async def client(bench: Bench) -> list[Row]:
    """Answers that come in one write, and answers at 50 chunks a second; this process is the client alone."""
    async with _provider(f"http://127.0.0.1:{bench.model.port}/v1") as provider:
        blob = [await _cpu(provider, "bench-2000-0", 1, 2000) for _ in range(20)]
        paced = [await _cpu(provider, "bench-200-50", 20, 200) for _ in range(bench.rounds)]
    return [
        Row("client CPU per chunk, in one write", statistics.median(blob), "us", "<= 20 us"),
        Row("client CPU per chunk, 20 streams at 50/s", statistics.median(paced), "us", "<= 110 us"),
    ]


async def cancelling(_: Bench) -> list[Row]:
    """From the cancel of a request whose model is silent to the moment at which the model's server notices."""
    times = []
    now = asyncio.get_running_loop().time
    async with ModelServer() as server, _provider(server.base_url) as provider:
        for number in range(50):
            server.script({"steps": [{"text": "a"}, {"hang": True}]})
            reading = asyncio.create_task(_read(provider, "m"))
            await server.requests(number + 1)
            await asyncio.sleep(0.01)
            begun = now()
            reading.cancel()
            await server.closed(number + 1)
            times.append((now() - begun) * 1000)
    times.sort()
    return [Row("cancel to closed socket, 49 of 50", times[48], "ms", "<= 100 ms")]


@asynccontextmanager
async def _provider(base_url: str) -> AsyncIterator[ChatProvider]:
    http = ModelHttp()
    try:
        yield ChatProvider("bench", base_url, None, http)
    finally:
        await http.aclose()


async def _cpu(provider: ChatProvider, model: str, streams: int, chunks: int) -> float:
    """Give microseconds of this process's CPU for each chunk of so many streams at a time."""
    begun = process_time()
    async with asyncio.TaskGroup() as group:
        reads = [group.create_task(_read(provider, model)) for _ in range(streams)]
    spent = process_time() - begun
    if {read.result() for read in reads} != {chunks}:
        message = "the model's answers are not whole"
        raise RuntimeError(message)
    return spent * 1e6 / (streams * chunks)


async def _read(provider: ChatProvider, model: str) -> int:
    """Read an answer; give the number of its words."""
    request = ModelRequest(model, (Message("user", "Go on."),))
    async with aclosing(provider.stream(request)) as events:
        return sum([event.text.count(WORD.decode()) async for event in events if isinstance(event, TextPiece)])
