"""The event log on a real database without the rest of the runtime: conversations that operations hold, and readers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from app.domain.chunks import StreamChunk
from app.domain.clock import SystemClock
from app.domain.ids import fresh_uuid, row_key, stream_id_for
from app.domain.turn import Caller, OperationKind, StreamStatus
from app.store import acceptance, claims, conversations, replicas, settling, streams
from app.store.claims import Claim
from app.store.database import Connection, Database
from app.store.events import insert_batches
from app.store.inbound import InboundRecord
from app.store.settling import Ended
from app.store.streams import StreamEnd, StreamRecord
from app.streaming.frames import Envelope, encode_end, split
from app.streaming.log import LogWriter
from app.streaming.outlet import Reader
from app.streaming.ring import Batch, Ring, Rings
from app.streaming.tail import Tail
from app.streaming.wakeups import Wakeups

ADA = Caller("ada")
PATIENCE = 30.0


class Silence:
    """A bus that carries nothing: this process is alone."""

    async def announce(self, stream_ids: Sequence[str]) -> None:
        pass

    async def run(self, wake: Callable[[Iterable[str] | None], None], watched: Callable[[], Sequence[str]]) -> None:
        del wake, watched
        await asyncio.get_running_loop().create_future()


class Process:
    """What one process has of the log: its rings, its writer, its readers."""

    def __init__(self, database: Database, *, heartbeat: float = 15.0) -> None:
        self.database = database
        self.fresh = True
        self.rings = Rings()
        self.wakeups = Wakeups(Silence())
        self.log = LogWriter(database, self.rings, interval=0.05, wakeups=self.wakeups)
        self.tail = Tail(database, self.rings, self.wakeups, heartbeat=heartbeat, may_send=lambda: self.fresh)

    async def begin(self, name: str = "chat", stream_id: str | None = None) -> "Running":
        """Take a conversation for an operation, on a new stream unless one is named."""
        key = row_key("", name)
        claim = Claim(fresh_uuid(), fresh_uuid(), key, ADA, name, name, "demo", stream_id or stream_id_for(key))
        async with self.database.transaction() as connection:
            await _register(connection, claim.replica)
            fence = await claims.take(connection, claim, create=True)
            if stream_id is None:
                await _store(connection, claim, fence)
            else:
                await streams.run_again(connection, key, claim.stream_id, fence)
        ring = Ring(key, claim.stream_id, fence)
        self.rings.open(ring)
        return Running(self, claim, ring)

    def reader(self, running: "Running") -> Reader:
        """Read an operation from its beginning."""
        return self.tail.operation(running.ring.conversation, running.ring.stream_id, running.ring.fence)

    async def record(self, stream_id: str, conversation: UUID) -> StreamRecord:
        async with self.database.transaction() as connection:
            found = await streams.find_stream(connection, conversation, stream_id)
        assert found is not None
        return found


async def _store(connection: Connection, claim: Claim, fence: int) -> None:
    """Store the operation and its new stream, as T1 does."""
    entry = InboundRecord(
        claim.conversation, claim.operation, OperationKind.TURN, "running", claim.stream_id, "t", fence, 1,
        touched=False, pause_id=None, payload={},
    )  # fmt: skip
    assert await acceptance.accept(connection, entry, persona_id="demo", ephemeral=False, new=(), batches=())


class Running:
    """An operation that holds its conversation."""

    def __init__(self, process: Process, claim: Claim, ring: Ring) -> None:
        self.process = process
        self.claim = claim
        self.ring = ring
        self._envelope = Envelope(stream_id=ring.stream_id, gmi_instance_id="gmi", persona_id="demo")

    def frame(self, text: str, n: int | None = None) -> bytes:
        chunk = StreamChunk("text_delta", {"text_delta": text})
        return self._envelope.encode(self.ring.fence, n or self.ring.last_n + 1, chunk, SystemClock().now())

    def say(self, *texts: str) -> None:
        for text in texts:
            self.ring.append(self.frame(text))

    async def end(self, status: StreamStatus = StreamStatus.COMPLETED) -> None:
        """Do what T2 does to the log, the stream and the conversation."""
        ring, process = self.ring, self.process
        await process.log.seal(ring)
        n = ring.last_n + 1
        frame = encode_end(ring.fence, n, status)
        last = Batch(ring.conversation, ring.stream_id, ring.fence, n, n, frame)
        ended = Ended(
            conversation=ring.conversation,
            stream_id=ring.stream_id,
            turn_id="turn",
            operation=self.claim.operation,
            end=StreamEnd(fence=ring.fence, last=n, status=status),
            messages=(),
            calls=(),
            kept=None,
            batches=[*ring.all_batches(), last],
        )
        async with process.database.statement() as connection:
            assert await settling.write(connection, ended)
        ring.append_durable([frame])
        process.wakeups.wake([ring.stream_id])
        ring.close()
        process.rings.drop(ring)

    async def seized(self, *texts: str, status: StreamStatus = StreamStatus.FAILED) -> int:
        """End the operation as a takeover does; gives the higher fence."""
        ring = self.ring
        async with self.process.database.transaction() as connection:
            seized = await claims.seize(connection, ring.conversation, self.claim.operation, only_dead=False)
            assert seized is not None
            frames = [
                self._envelope.encode(seized.fence, n, StreamChunk("text_delta", {"text_delta": text}), now())
                for n, text in enumerate(texts, start=1)
            ]
            last = len(frames) + 1
            frames.append(encode_end(seized.fence, last, status))
            batch = Batch(ring.conversation, ring.stream_id, seized.fence, 1, last, b"".join(frames))
            end = StreamEnd(fence=seized.fence, last=last, status=status)
            await streams.end_operation(connection, ring.conversation, ring.stream_id, end)
            await insert_batches(connection, [batch])
        return seized.fence

    async def erase(self) -> None:
        async with self.process.database.transaction() as connection:
            await conversations.erase(connection, self.ring.conversation)


def now() -> Any:
    return SystemClock().now()


async def _register(connection: Connection, replica: UUID) -> None:
    await replicas.register(connection, replica, timedelta(hours=1))


@asynccontextmanager
async def process_on(url: str, **more: Any) -> AsyncIterator[Process]:
    database = Database(url, pool_size=3)
    try:
        yield Process(database, **more)
    finally:
        await database.close()


class Socket:
    """Takes what is sent, as a response's client does: at once while `free` is set, else when it is set again."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.free = asyncio.Event()
        self.free.set()
        self.failure: Exception | None = None

    async def send(self, piece: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        self.taken.append(piece)
        await self.free.wait()

    async def serve(self, reader: Reader) -> None:
        """Send all that a reader gets, as a response does."""
        reader.outlet.open(self.send)
        async with asyncio.timeout(PATIENCE), aclosing(reader):
            async for piece in reader:
                await (self.send(piece) if piece else reader.outlet.finish())

    @property
    def frames(self) -> list[bytes]:
        """What was taken, without comments and hints."""
        return [frame for piece in self.taken for frame in split(piece) if frame.startswith(b"id: ")]


async def read_all(reader: Reader | None) -> list[bytes]:
    """Read to the end and give the frames, without comments and hints."""
    assert reader is not None
    socket = Socket()
    await socket.serve(reader)
    return socket.frames


async def one(reader: AsyncIterator[bytes]) -> bytes:
    """Read one piece, as a task can."""
    return await anext(reader)


async def take(reader: AsyncIterator[bytes], count: int) -> list[bytes]:
    """Read until there are `count` frames."""
    frames: list[bytes] = []
    async with asyncio.timeout(PATIENCE):
        async for piece in reader:
            frames += [frame for frame in split(piece) if frame.startswith(b"id: ")]
            if len(frames) >= count:
                break
    return frames


async def comment(reader: AsyncIterator[bytes], mark: bytes = b":") -> bytes:
    """Read until a comment (or what else the mark says)."""
    async with asyncio.timeout(PATIENCE):
        async for piece in reader:
            if piece.startswith(mark):
                return piece
    raise AssertionError("the reader ended")


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a state of this process."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what is waited for may be anything
            await asyncio.sleep(0.005)
