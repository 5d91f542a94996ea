"""How cost grows past one process: several replicas on one Postgres, and what a turn leaves in its write-ahead log."""

import asyncio
import os
import statistics
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from tests.bench.load import at_once, post, words_in
from tests.bench.measures import Bench, Row, check
from tests.bench.processes import TICKS, Process, fermata

TURNS = 8
TOKENS = 100
PACE = 20


async def wal(bench: Bench) -> list[Row]:
    """Bytes of the write-ahead log for each turn, and rows and bytes that it leaves in the tables."""
    connection = await asyncpg.connect(bench.database)
    try:
        await connection.execute("CHECKPOINT")  # the first change of a page behind one writes the page as a whole
        await at_once(16, lambda _: bench.turn("bench-200-50"))
        figures = []
        first = await connection.fetchval("SELECT last_value FROM fences")
        for _ in range(bench.rounds):
            before = await _written(connection)
            check(await at_once(16, lambda _: bench.turn("bench-200-50")), 200)
            figures.append((await _written(connection) - before) / 16 / 1024)
        log = await connection.fetchrow(
            """
            SELECT sum(length(frames)) / count(DISTINCT fence) AS size, count(*) / count(DISTINCT fence) AS rows
            FROM stream_events WHERE fence > $1
            """,
            first,
        )
    finally:
        await connection.close()
    details = {"frames_kib": round(float(log["size"]) / 1024, 1), "log_rows": int(log["rows"])}
    return [Row("write-ahead log per turn of 200 tokens, paced", statistics.median(figures), "KiB", "-", details)]


async def _written(connection: Any) -> float:
    return float(await connection.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))


async def replicas(bench: Bench) -> list[Row]:
    """One, two and three replicas with as many turns each: what a turn costs must not grow with their number."""
    rows: list[Row] = []
    async with AsyncExitStack() as running:
        servers = [bench.fermata]
        for number in (1, 2, 3):
            if number > 1:
                servers.append(await running.enter_async_context(fermata(bench.model, bench.database)))
            rows += await _together(bench, servers)
    return rows


async def _together(bench: Bench, servers: list[Process]) -> list[Row]:
    """Run turns on all replicas at once; every stream is also read, from its beginning, on another one."""
    postmaster = await _postmaster(bench.database)
    count = TURNS * len(servers)
    before = [server.cpu() for server in servers], _cpu_of_family(postmaster)
    wholes = await asyncio.gather(*(_turn(servers, index) for index in range(count)))
    await asyncio.sleep(0.3)
    own = [(server.cpu() - used) * 1000 / TURNS for server, used in zip(servers, before[0], strict=True)]
    database = (_cpu_of_family(postmaster) - before[1]) * 1000 / count
    if not all(wholes):
        message = "a stream that was read on another replica was not whole"
        raise RuntimeError(message)
    connections = await _connections(bench.database)
    name = f"{len(servers)} replicas, {count} turns"
    return [
        Row(f"{name}: CPU per turn of its replica", statistics.mean(own), "ms", "the same for 1, 2, 3"),
        Row(f"{name}: Postgres CPU per turn", database, "ms", "the same for 1, 2, 3", {"connections": connections}),
    ]


async def _turn(servers: list[Process], index: int) -> bool:
    here, there = servers[index % len(servers)], servers[(index + 1) % len(servers)]
    name = f"grow-{len(servers)}-{index}-{os.urandom(4).hex()}"
    body = {"input": "Go on.", "options": {"model": f"openai:bench-{TOKENS}-{PACE}"}}
    told = await post(here.address, f"/v1/conversations/{name}/turns", body, keep=True)
    stream = told.body.decode().partition('"stream_id":"')[2].partition('"')[0]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{there.port}", timeout=60) as client:
        replayed = (await client.get(f"/v1/streams/{stream}/events")).content
    return told.tokens == TOKENS == words_in(replayed)


async def _postmaster(database: str) -> int:
    """Give the process that all of Postgres's processes are children of."""
    connection = await asyncpg.connect(database)
    try:
        backend = await connection.fetchval("SELECT pg_backend_pid()")
        return int(Path(f"/proc/{backend}/stat").read_text().rpartition(")")[2].split()[1])
    finally:
        await connection.close()


async def _connections(database: str) -> int:
    connection = await asyncpg.connect(database)
    try:
        return int(
            await connection.fetchval("SELECT count(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'")
        )
    finally:
        await connection.close()


def _cpu_of_family(parent: int) -> float:
    """Seconds of CPU of a process, of the children that it has, and of those that have ended."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[1]) == parent:
            ticks += int(fields[11]) + int(fields[12])
        elif stat.parent.name == str(parent):
            ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS
