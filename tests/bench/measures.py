"""What is measured. Each measure gives one row: a name, a figure with its unit, what it is to reach, and details."""

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

import asyncpg
import httpx

from tests.bench.load import Read, at_once, in_flight, post
from tests.bench.processes import APART, MANY_READERS, Process, fermata

TOOL = {"name": "host", "description": "runs at the host", "input_schema": {"type": "object", "properties": {}}}
_numbers = count()


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    figure: float
    unit: str
    to_reach: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bench:
    """The processes under measurement, and how many rounds a median is taken of."""

    fermata: Process
    relay: Process
    model: Process
    database: str
    rounds: int = 3

    def turn(
        self,
        model: str,
        *,
        conversation: str | None = None,
        keep: bool = False,
        on_token: Callable[[], None] | None = None,
        **more: Any,
    ) -> Coroutine[Any, Any, Read]:
        """Run a turn in a conversation of its own, unless one is named."""
        name = conversation or f"bench-{next(_numbers)}"
        body = {"input": "Go on.", "options": {"model": f"openai:{model}"}, **more}
        return post(self.fermata.address, f"/v1/conversations/{name}/turns", body, keep=keep, on_token=on_token)

    def relayed(self, model: str) -> Coroutine[Any, Any, Read]:
        """Ask the model through the relay."""
        body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Go on."}]}
        return post(self.relay.address, "/v1/chat/completions", body)

    async def cpu_per_turn(self, process: Process, turns: int, run: Callable[[], Awaitable[Any]]) -> float:
        """Give milliseconds of the process's CPU for each of the turns that `run` runs; the median of the rounds."""
        figures = []
        for _ in range(self.rounds):
            before = process.cpu()
            await run()
            await asyncio.sleep(0.2)
            figures.append((process.cpu() - before) * 1000 / turns)
        return statistics.median(figures)

    async def beside_the_relay(
        self, turns: int, limit: Callable[[], Awaitable[Any]], ours: Callable[[], Awaitable[Any]]
    ) -> tuple[float, float]:
        """Give both processes' milliseconds a turn, in alternate rounds: a machine changes its mood."""
        once, pairs = replace(self, rounds=1), []
        for _ in range(self.rounds + 2):
            theirs = await once.cpu_per_turn(self.relay, turns, limit)
            pairs.append((theirs, await once.cpu_per_turn(self.fermata, turns, ours)))
        relays, mine = zip(*pairs, strict=True)
        return statistics.median(relays), statistics.median(mine)


def check(reads: list[Read], tokens: int) -> None:
    """Fail when a turn was not whole: a figure of broken turns says nothing."""
    bad = [read for read in reads if read.status != 200 or read.tokens != tokens]
    if bad:
        message = f"{len(bad)} of {len(reads)} turns are not whole: status {bad[0].status}, {bad[0].tokens} tokens"
        raise RuntimeError(message)


async def paced(bench: Bench) -> list[Row]:
    """40 turns at once, 200 tokens each at 50 tokens a second; once more where no text is gathered."""
    size: list[int] = []

    async def ours(tokens: int = 200, server: Bench = bench) -> None:
        reads = await at_once(40, lambda _: server.turn(f"bench-{tokens}-50"))
        check(reads, tokens)
        size.extend(read.size for read in reads if tokens == 200)

    async def limit() -> None:
        check(await at_once(40, lambda _: bench.relayed("bench-200-50")), 200)

    theirs, short = await bench.beside_the_relay(40, limit, ours)
    once = Bench(bench.fermata, bench.relay, bench.model, bench.database, rounds=1)
    long = await once.cpu_per_turn(bench.fermata, 40, lambda: ours(1000))
    each = statistics.median(size)
    size.clear()
    async with fermata(bench.model, bench.database, **APART) as server:
        single = replace(bench, fermata=server)
        await single.turn("bench-50-0")
        apart = await single.cpu_per_turn(server, 40, lambda: ours(server=single))
    return [
        Row("paced: server CPU per turn", short, "ms", "<= 45 ms", {"relay": theirs}),
        Row("paced: times the relay", short / theirs, "x", "<= 2.4 x"),
        Row("paced: CPU per further token", (long - short) * 1000 / 800, "us", "<= 200 us"),
        Row("paced: bytes on the wire per turn", each / 1024, "KiB", "<= 46 KiB"),
        Row("paced, each token told by itself: server CPU per turn", apart, "ms", "-"),
        Row("paced, each token told by itself: times the relay", apart / theirs, "x", "-"),
        Row("paced, each token told by itself: bytes on the wire", statistics.median(size) / 1024, "KiB", "-"),
    ]


async def burst(bench: Bench) -> list[Row]:
    """16 turns at once, the model without delay."""
    speed: list[float] = []
    size: list[int] = []

    async def ours() -> None:
        reads, seconds = await in_flight(96, 16, lambda _: bench.turn("bench-200-0"))
        check(reads, 200)
        speed.append(96 / seconds)
        size.extend(read.size for read in reads)

    async def limit() -> None:
        check((await in_flight(96, 16, lambda _: bench.relayed("bench-200-0")))[0], 200)

    theirs, mine = await bench.beside_the_relay(96, limit, ours)
    return [
        Row("burst: server CPU per turn", mine, "ms", "<= 15 ms", {"relay": theirs}),
        Row("burst: times the relay", mine / theirs, "x", "<= 5 x"),
        Row("burst: turns per second", statistics.median(speed), "/s", ">= 45 /s"),
        Row("burst: bytes on the wire per turn", statistics.median(size) / 1024, "KiB", "<= 46 KiB"),
    ]


async def first_token(bench: Bench) -> list[Row]:
    """One client, one turn at a time: how much later than the model's own the first token comes."""
    ours, limit = [], []
    for _ in range(100):
        limit.append((await bench.relayed("bench-5-50")).first)
        ours.append((await bench.turn("bench-5-50")).first)
    base = statistics.median(limit)
    later = sorted((seconds - base) * 1000 for seconds in ours)
    return [
        Row("first token beyond the relay's, median", later[50], "ms", "<= 12 ms"),
        Row("first token beyond the relay's, 99 of 100", later[98], "ms", "<= 40 ms"),
    ]


async def pause(bench: Bench) -> list[Row]:
    """From posting the results to the continuation's first token."""
    times = []
    for _ in range(60):
        asked = await bench.turn("bench-pause-5", tools=[TOOL], keep=True)
        text = asked.body.decode()
        stream = text.partition('"stream_id":"')[2].partition('"')[0]
        body = {"results": [{"tool_call_id": "call_b", "output": "done"}]}
        read = await post(bench.fermata.address, f"/v1/streams/{stream}/tool-results", body)
        times.append(read.first * 1000)
    return [Row("results to the continuation's first token, median", statistics.median(times), "ms", "<= 15 ms")]


async def crowd(bench: Bench) -> list[Row]:
    """1,000 turns at once at 10 tokens a second: nobody starves, and none costs much memory beside 200 of them."""

    async def together(number: int) -> tuple[list[Read], int]:
        peak = 0
        running = asyncio.create_task(at_once(number, lambda _: bench.turn("bench-100-10")))
        while not running.done():
            peak = max(peak, bench.fermata.memory())
            await asyncio.sleep(0.25)
        reads = await running
        check(reads, 100)
        return reads, peak

    gaps, sizes = [], []
    for _ in range(bench.rounds):  # each with a server of its own: what one round has left, the next would use unseen
        async with fermata(bench.model, bench.database, **MANY_READERS) as server:
            bench = replace(bench, fermata=server)
            _, few = await together(200)
            reads, many = await together(1000)
        gaps.append(sorted(read.longest_gap * 1000 for read in reads)[989])
        sizes.append((many - few) / 1024 / 800)
    return [
        Row("1,000 turns at once: longest gap, 99 of 100", statistics.median(gaps), "ms", "<= 500 ms"),
        Row("1,000 turns at once: memory each", statistics.median(sizes), "KiB", "<= 60 KiB", {"rounds": sizes}),
    ]


async def readers(bench: Bench) -> list[Row]:
    """Idle readers, in a process of their own: what others had taken and left would be taken again unseen."""
    async with fermata(bench.model, bench.database, **MANY_READERS) as server:
        return await _readers(replace(bench, fermata=server))


async def _readers(bench: Bench, number: int = 5000) -> list[Row]:
    """Idle readers of one stream that is running: a token comes every 20 seconds."""
    turn = asyncio.create_task(bench.turn("bench-100-0.05", conversation="bench-readers"))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{bench.fermata.port}") as client:
        stream = None
        while stream is None:
            await asyncio.sleep(0.1)
            found = await client.get("/v1/conversations/bench-readers")
            stream = found.json().get("active_stream_id") if found.status_code == 200 else None
    before = bench.fermata.memory()
    request = f"GET /v1/streams/{stream}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    opened = []
    for _ in range(number):
        reader, writer = await asyncio.open_connection(*bench.fermata.address)
        writer.write(request)
        await reader.readuntil(b": ok\n\n")
        opened.append((reader, writer))
    each = (bench.fermata.memory() - before) / 1024 / number
    if turn.done() or any(reader.at_eof() for reader, _ in opened):
        message = "The stream ended before all its readers were there."
        raise RuntimeError(message)
    for _, writer in opened:
        writer.close()
    turn.cancel()
    return [Row(f"{number:,} readers: memory each", each, "KiB", "<= 25 KiB")]


async def replay(bench: Bench) -> list[Row]:
    """Reading a 2,000-token stream back from the database, in which each token is an event."""
    speeds, events = [], 0
    async with fermata(bench.model, bench.database, **APART) as server:
        made = await replace(bench, fermata=server).turn("bench-2000-500", keep=True)
        stream = made.body.decode().partition('"stream_id":"')[2].partition('"')[0]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
            for _ in range(20):
                began = asyncio.get_running_loop().time()
                body = (await client.get(f"/v1/streams/{stream}/events")).content
                events = body.count(b"\nevent: ")
                speeds.append(events / (asyncio.get_running_loop().time() - began))
    if events < 1000:
        message = f"The stream has {events} events only."
        raise RuntimeError(message)
    return [Row("replay from the database", statistics.median(speeds), "events/s", ">= 50,000 /s", {"events": events})]


async def length(bench: Bench) -> list[Row]:
    """Turns on conversations past the limit, which are all told the same number of messages, and on a short one."""
    past = (200, 1000, 100_000)
    names = {size: f"bench-long-{size}" for size in (10, *past)}
    for size, name in names.items():
        check([await bench.turn("bench-5-0", conversation=name)], 5)
        await _fill(bench.database, name, size)
    times: dict[int, list[float]] = {size: [] for size in names}
    for _ in range(30):  # in turn, so that whatever else the machine does meets all of them
        for size, name in names.items():
            times[size].append((await bench.turn("bench-5-0", conversation=name)).seconds * 1000)
    figures = {size: statistics.median(taken) for size, taken in times.items()}
    worst = max(figures[size] for size in past) / min(figures[size] for size in past)
    return [
        Row("turn on 200, 1,000, 100,000 messages: worst to best", worst, "x", "<= 1.15 x", {"ms": figures}),
        Row("turn on 100,000 messages to one on 10 to 70", figures[past[-1]] / figures[10], "x", "<= 1.15 x"),
    ]


async def fixed(bench: Bench, number: int = 96) -> list[Row]:
    """What a turn costs besides its tokens, with a short and a longer history; each has a conversation of its own."""
    rows = []
    for size in (10, 50):
        names = [f"bench-fixed-{size}-{n}" for n in range(number)]
        turn = partial(_one_token, bench, names)
        check((await in_flight(number, 8, turn))[0], 1)
        for name in names:
            await _fill(bench.database, name, size)
        cpu = await bench.cpu_per_turn(bench.fermata, number, partial(in_flight, number, 8, turn))
        rows.append(Row(f"turn of one token on {size} messages: server CPU", cpu, "ms", "-"))
    return rows


def _one_token(bench: Bench, names: list[str], number: int) -> Coroutine[Any, Any, Read]:
    return bench.turn("bench-1-0", conversation=names[number])


async def _fill(database: str, conversation: str, size: int) -> None:
    connection = await asyncpg.connect(database)
    try:
        await connection.execute(
            """
            INSERT INTO messages (conversation, position, message_id, turn_id, role, content)
            SELECT c.id, 10 + n, 'm' || n, 't' || (n / 2), CASE n % 2 WHEN 1 THEN 'user' ELSE 'assistant' END, '"text"'
            FROM conversations c, generate_series(1, $2) n WHERE c.conversation_id = $1
            """,
            conversation,
            size,
        )
        await connection.execute("ANALYZE messages")
    finally:
        await connection.close()


MEASURES = (burst, fixed, paced, first_token, pause, replay, length, readers, crowd)
