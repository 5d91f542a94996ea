"""What one step of a turn costs, by itself: the same code as in the server, in this process, in microseconds of CPU."""

import asyncio
import os
import resource
import statistics
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import process_time
from typing import Any

from app.api.schemas.turns import TurnBody
from app.domain.chunks import StreamChunk
from app.domain.ids import fresh, fresh_uuid, row_key, stream_id_for
from app.domain.messages import Message
from app.domain.session import SessionKey, TraceEntry
from app.domain.turn import Caller, OperationKind, StreamStatus
from app.domain.usage import ModelCall
from app.store import acceptance, inbound, replicas, settling, starts
from app.store.claims import Claim
from app.store.database import Connection, Database
from app.store.inbound import InboundRecord
from app.store.messages import NewMessage
from app.store.sessions import Kept
from app.store.settling import Ended
from app.store.streams import StreamEnd
from app.streaming.frames import Envelope
from app.streaming.ring import Batch
from tests.bench.measures import Bench, Row
from tests.bench.processes import ROOT

ADA = Caller("ada")
PERSONA = "demo"


def _timed(times: int, work: Callable[[], Any]) -> float:
    """Give the microseconds of CPU that one call takes."""
    work()
    began = process_time()
    for _ in range(times):
        work()
    return (process_time() - began) * 1e6 / times


@dataclass(slots=True)
class Spent:
    """Seconds of CPU by name."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    async def on(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do it and note what it took."""
        began = process_time()
        found = await work()
        self.seconds.setdefault(name, []).append(process_time() - began)
        return found

    def rows(self) -> list[Row]:
        """Give a row for each name."""
        return [
            Row(f"stage: {name}", statistics.median(taken) * 1e6, "us", "-") for name, taken in self.seconds.items()
        ]


async def stages(bench: Bench) -> list[Row]:
    """A body read, a frame encoded, and the transactions of a plain turn."""
    body = {"input": "Go on.", "options": {"model": "openai:bench-200-0"}}
    read = _timed(2000, lambda: TurnBody.model_validate(body).to_domain(ADA, "chat", None))
    envelope = Envelope(stream_id=stream_id_for(row_key("", "chat")), gmi_instance_id="gmi_0", persona_id=PERSONA)
    chunk, now = StreamChunk("text_delta", {"text_delta": " token"}), datetime.now(UTC)
    framed = _timed(20_000, lambda: envelope.encode(1, 1, chunk, now))
    database, spent = Database(bench.database), Spent()
    try:
        replica = fresh_uuid()
        async with database.transaction() as connection:
            await replicas.register(connection, replica, timedelta(minutes=5))
        for number in range(300):
            await _turn(database, spent, replica, f"stage-{number}")
    finally:
        await database.close()
    return [
        Row("stage: a turn's body read", read, "us", "-"),
        Row("stage: a text frame encoded", framed, "us", "-"),
        *spent.rows(),
    ]


async def _turn(database: Database, spent: Spent, replica: Any, name: str) -> None:
    """Ask the database what a plain turn asks."""
    key = row_key("", name)
    claim = Claim(fresh_uuid(), replica, key, ADA, name, name, PERSONA, stream_id_for(key))
    fences: list[int] = []

    async def accepted() -> None:
        async with database.statement() as connection:
            fences.append(await _accept(connection, claim))

    async def started() -> None:
        async with database.statement() as connection:
            await starts.read(connection, key, SessionKey.of(ADA, name), oldest=4, newest=52)

    async def touched() -> None:
        async with database.statement() as connection:
            await inbound.touch(connection, key, claim.operation, fences[-1])

    async def settled() -> None:
        async with database.statement() as connection:
            await settling.write(connection, _ended(claim, fences[-1]))

    await spent.on("T1", accepted)
    await spent.on("history, summary and session read", started)
    await spent.on("touched", touched)
    await spent.on("T2", settled)


async def _accept(connection: Connection, claim: Claim) -> int:
    entry = InboundRecord(
        claim.conversation, claim.operation, OperationKind.TURN, "running", claim.stream_id, "turn", 0, 1,
        touched=False, pause_id=None, payload={"input": "Go on."},
    )  # fmt: skip
    said = NewMessage(fresh("msg"), Message("user", "Go on."), "turn")
    fence = await acceptance.accept_free(connection, claim, entry, ephemeral=False, new=[said], rests=[b"x" * 1000])
    if fence is None:
        message = "a new conversation was not taken"
        raise RuntimeError(message)
    return fence


def _ended(claim: Claim, fence: int) -> Ended:
    trace = tuple(TraceEntry(datetime.now(UTC), "llm_call_complete", "Done.") for _ in range(4))
    return Ended(
        conversation=claim.conversation,
        stream_id=claim.stream_id,
        turn_id="turn",
        operation=claim.operation,
        end=StreamEnd(
            fence, 2, StreamStatus.COMPLETED, "ended", final_response={"final_response_text": "token " * 200}
        ),
        messages=[NewMessage(fresh("msg"), Message("assistant", "token " * 200), "turn")],
        calls=[ModelCall("turn", 0, 0, 1, "openai", "bench", "delivered", seconds=0.1)],
        kept=Kept(SessionKey.of(ADA, claim.session_id), claim.conversation_id, PERSONA, trace, 500, {}),
        batches=[_batch(claim, fence, 2)],
    )


def _batch(claim: Claim, fence: int, n: int) -> Batch:
    return Batch(claim.conversation, claim.stream_id, fence, n, n, b"x" * 1000)


async def cold(bench: Bench) -> list[Row]:
    """Imports in processes of their own: the door, what its lifespan imports with it, and all that a start does."""
    del bench
    wall, cpu = await _imported("import app.main")
    _, whole = await _imported("import app.main; app.main._own_runtime()")
    _, starting = await _imported("from app.__main__ import commands; commands()")
    return [
        Row("import of app.main, with the interpreter", wall, "s", "<= 0.7 s"),
        Row("import of app.main: CPU", cpu, "s", "-"),
        Row("import of app.main and of what its lifespan needs: CPU", whole, "s", "-"),
        Row("imports of a start: CPU", starting, "s", "-"),
    ]


async def _imported(code: str) -> tuple[float, float]:
    """Give the fewest seconds, and seconds of CPU, of a few processes; the first of them may have to compile."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    wall, cpu = [], []
    for _ in range(6):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = asyncio.get_running_loop().time()
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT, env=kept)
        if await child.wait():
            message = "the application can't be imported"
            raise RuntimeError(message)
        wall.append(asyncio.get_running_loop().time() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(wall), min(cpu)
