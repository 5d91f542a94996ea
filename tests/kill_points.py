"""Named points in transactions at which a test kills, freezes, holds or cuts a process: a proxy in front of Postgres.

What a process has done is what it has told its database, so no code of the product is touched: between two statements
is where the proxy has passed on the one and keeps the other back. A point is `(transaction, at)`: `at` is the number of
a statement (kept back before it reaches the database), `COMMIT` (the same), or `DONE`, where the commit has landed and
its answer is kept back. `TRANSACTIONS` names a transaction by its first statement.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from sqlalchemy.engine import make_url

COMMIT: Final = "COMMIT"
DONE: Final = "DONE"
PATIENCE: Final = 20.0

TRANSACTIONS: Final = {
    "take": r"\s*INSERT INTO conversations .*\sON CONFLICT",
    "accept": r"\s*WITH taken AS",
    "continue": r"\s*UPDATE conversations SET\s+fence = nextval\('fences'\), running_operation = ",
    "start": r"\s*WITH summary AS",
    "settle": r"\s*WITH released AS",
    "end": r"UPDATE conversations SET fence=nextval\('fences'\), updated_at=now\(\) WHERE",
    "cancel": r"UPDATE conversations SET cancel_fence=conversations.fence",
    "partial": r"\s*SELECT [^(]* FROM pending_external_tool_requests .* FOR UPDATE",
    "touch": r"\s*UPDATE inbound_messages SET touched = ",
    "journal": r"UPDATE inbound_messages SET journal",
    "flush": r"\s*WITH input AS",
    "takeover": r"SELECT inbound_messages\.conversation, .* AND inbound_messages\.operation = ",
    "leave": r"DELETE FROM inbound_messages",
    "renew": r"UPDATE replicas SET expires_at=",
    "mark": r"UPDATE replicas SET dead=",
    "find": r"\s*SELECT stream\.",
}
_NAMES: Final = {name: re.compile(pattern, re.DOTALL) for name, pattern in TRANSACTIONS.items()}
_INTROSPECTION: Final = re.compile(r"\s*(WITH RECURSIVE typeinfo|SELECT\s+(current_setting\('jit'|set_config\('jit'))")
"""What the driver asks for itself, once for each type it meets."""

_STARTUP_HEAD: Final = 4
_CANCEL_REQUEST: Final = 80877102
_TLS_REQUEST: Final = 80877103


At = int | str


def name_of(statement: str) -> str:
    """Name a transaction by its first statement; an unknown one is named by its first words."""
    for name, pattern in _NAMES.items():
        if pattern.match(statement):
            return name
    return " ".join(statement.split()[:4])


@dataclass(slots=True)
class Transaction:
    """What a connection has told since BEGIN."""

    statements: list[str] = field(default_factory=list)
    values: bytes = b""

    @property
    def name(self) -> str:
        return name_of(self.statements[0]) if self.statements else ""


class Hold:
    """A point at which one transaction of a conversation is to be held, once."""

    def __init__(self, name: str, at: At, conversation: UUID | None) -> None:
        self.name = name
        self.at = at
        self.key = conversation.bytes if conversation else b""
        self._reached = asyncio.Event()
        self._left: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"{self.name}:{self.at}"

    @property
    def is_reached(self) -> bool:
        return self._reached.is_set()

    async def reached(self, seconds: float = PATIENCE) -> None:
        """Wait until a party stands at the point."""
        try:
            async with asyncio.timeout(seconds):
                await self._reached.wait()
        except TimeoutError:
            message = f"nobody came to {self}"
            raise AssertionError(message) from None

    def go(self) -> None:
        """Let the party go on."""
        if not self._left.done():
            self._left.set_result(True)

    def drop(self) -> None:
        """Cut the party's connection: it learns nothing of what became of its last message."""
        if not self._left.done():
            self._left.set_result(False)

    def fits(self, transaction: Transaction, at: At) -> bool:
        return self.at == at and self.name == transaction.name and self.key in transaction.values

    async def stay(self, gone: asyncio.Event) -> bool:
        """Stand here until let go (True), cut, or the party's process has gone (False)."""
        self._reached.set()
        leaving: asyncio.Future[bool] = asyncio.ensure_future(gone.wait())  # noqa: TID251 - it ends in here
        try:
            await asyncio.wait([leaving, self._left], return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
        return self._left.done() and self._left.result()


class KillPoints:
    """The proxy. `url` leads through it; `finished` are the transactions that were committed, as names and sizes."""

    def __init__(self, database: str) -> None:
        self._database = make_url(database)
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self.holds: list[Hold] = []
        self.finished: list[Transaction] = []
        self.refuses = False
        self.flows = asyncio.Event()
        self.flows.set()

    @property
    def url(self) -> str:
        """The database's address through this proxy."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        told = self._database.set(host=host, port=port, query={})
        return told.render_as_string(hide_password=False)

    def hold(self, name: str, at: At, conversation: UUID | None = None) -> Hold:
        """Hold the next transaction of that name (and conversation) that comes to the point."""
        assert name in TRANSACTIONS
        hold = Hold(name, at, conversation)
        self.holds.append(hold)
        return hold

    def cut(self) -> None:
        """Cut every connection, as a network does that fails."""
        for link in list(self._links):
            link.cut()

    def part(self) -> None:
        """Pass nothing on until `join`: connections stay, and nobody learns that what he says arrives nowhere."""
        self.flows.clear()

    def join(self) -> None:
        """Pass on what was kept back, and everything from now on."""
        self.flows.set()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Let the database be out of reach while the context is open."""
        self.refuses = True
        self.cut()
        try:
            yield
        finally:
            self.refuses = False

    async def open_to(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the database itself."""
        sockets, port = self._database.query.get("host"), self._database.query.get("port") or self._database.port
        if isinstance(sockets, str):
            return await asyncio.open_unix_connection(f"{sockets}/.s.PGSQL.{port}")
        return await asyncio.open_connection(self._database.host, int(str(port or 5432)))

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.join()
        for hold in self.holds:
            hold.drop()
        self.cut()
        await asyncio.gather(*(link.over.wait() for link in list(self._links)))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(self, reader, writer)
        self._links.add(link)
        try:
            if not self.refuses:
                await link.run()
        except (OSError, asyncio.IncompleteReadError):
            pass  # one of the two went away
        finally:
            link.cut()
            link.over.set()
            self._links.discard(link)


class _Link:
    """One connection of a process, and the one to the database behind it."""

    def __init__(self, points: KillPoints, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._points = points
        self._reader = reader
        self._writer = writer
        self._upstream: asyncio.StreamWriter | None = None
        self._statements: dict[bytes, str] = {}
        self._transaction: Transaction | None = None
        self._committing: Transaction | None = None
        self._asked: asyncio.Queue[tuple[bytes, bytes] | None] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._holds = 0
        self.over = asyncio.Event()

    def cut(self) -> None:
        for writer in (self._writer, self._upstream):
            if writer is not None:
                writer.close()
        self._gone.set()

    async def run(self) -> None:
        """Pass messages on in both directions until one of the two ends."""
        opening = await self._opening()
        await self._points.flows.wait()
        answers, self._upstream = await self._points.open_to()
        self._upstream.write(opening)
        parts = [self._read_asked(), self._pass_asked(self._upstream), self._pass_answers(answers)]
        tasks = [asyncio.ensure_future(part) for part in parts]  # noqa: TID251 - all end in here
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            while self._holds and not all(task.done() for task in tasks[1:]):
                # A database that ends a transaction for idleness is not heard of by whoever stands at a point.
                await asyncio.wait([task for task in tasks if not task.done()], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _stay(self, hold: Hold) -> bool:
        self._holds += 1
        try:
            return await hold.stay(self._gone)
        finally:
            self._holds -= 1

    async def _opening(self) -> bytes:
        """Read the first message; encryption is refused as a server without it does."""
        while True:
            head = await self._reader.readexactly(_STARTUP_HEAD)
            body = await self._reader.readexactly(int.from_bytes(head) - _STARTUP_HEAD)
            if int.from_bytes(body[:4]) != _TLS_REQUEST:
                return head + body
            self._writer.write(b"N")

    async def _read_asked(self) -> None:
        """Read ahead, so that it is seen when the process goes."""
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                await self._asked.put(await _message(self._reader))
        self._gone.set()
        await self._asked.put(None)

    async def _pass_asked(self, upstream: asyncio.StreamWriter) -> None:
        while (asked := await self._asked.get()) is not None:
            kind, body = asked
            hold = self._hold_before(kind, body)
            if hold is not None and not await self._stay(hold):
                return
            await self._points.flows.wait()
            upstream.write(kind + (len(body) + 4).to_bytes(4) + body)
            await upstream.drain()

    def _hold_before(self, kind: bytes, body: bytes) -> Hold | None:
        """Follow what is asked; gives the hold that keeps this message back, if there is one."""
        if kind == b"P":
            name, statement = body.split(b"\0", 2)[:2]
            self._statements[name] = statement.decode()
        elif kind == b"B":
            statement_name = body.split(b"\0", 2)[1]
            return self._hold_statement(self._statements.get(statement_name, ""), body)
        elif kind == b"Q":
            return self._hold_simple(body.rstrip(b"\0").decode())
        return None

    def _hold_simple(self, statement: str) -> Hold | None:
        if statement.startswith("BEGIN"):
            self._transaction = Transaction()
        elif statement.startswith("ROLLBACK"):
            self._transaction = None
        elif statement.startswith("COMMIT") and self._transaction is not None:
            self._committing, self._transaction = self._transaction, None
            return self._find(self._committing, COMMIT)
        return None

    def _hold_statement(self, statement: str, values: bytes) -> Hold | None:
        if _INTROSPECTION.match(statement):
            return None
        transaction, alone = self._transaction, self._transaction is None
        if transaction is None:
            # A statement outside a transaction is one by itself: in front of it is in front of its commit.
            self._committing = transaction = Transaction()
        transaction.values += values
        if transaction.statements[-1:] == [statement]:
            return None  # one more row of the same: how many there are is a matter of time
        transaction.statements.append(statement)
        here = self._find(transaction, len(transaction.statements) - 1)
        return here or (self._find(transaction, COMMIT) if alone else None)

    def _find(self, transaction: Transaction, at: At) -> Hold | None:
        for hold in self._points.holds:
            if not hold.is_reached and hold.fits(transaction, at):
                return hold
        return None

    async def _pass_answers(self, answers: asyncio.StreamReader) -> None:
        kept = b""
        while True:
            kind, body = await _message(answers)
            kept += kind + (len(body) + 4).to_bytes(4) + body
            if self._committing is not None and kind != b"Z":
                continue  # the whole answer to a commit is kept until it is known to be one
            if self._committing is not None:
                committed, self._committing = self._committing, None
                self._points.finished.append(committed)
                hold = self._find(committed, DONE)
                if hold is not None and not await self._stay(hold):
                    return
            await self._points.flows.wait()
            self._writer.write(kept)
            kept = b""
            await self._writer.drain()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], await reader.readexactly(int.from_bytes(head[1:]) - 4)


@asynccontextmanager
async def kill_points(database: str) -> AsyncIterator[KillPoints]:
    """Run a proxy in front of a database."""
    points = KillPoints(database)
    await points.start()
    try:
        yield points
    finally:
        await points.stop()
