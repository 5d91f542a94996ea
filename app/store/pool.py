"""A pool that hands out open connections as they are.

The toolkit's own pool makes its objects anew for each use, which costs more than a small statement does. This one
keeps them: between two uses a connection is a place in a list.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection as CoreConnection
from sqlalchemy import CursorResult, Engine, Executable, ScalarResult
from sqlalchemy.util import greenlet_spawn

Parameters = Mapping[str, Any] | Sequence[Mapping[str, Any]]
Found = CursorResult[*tuple[Any, ...]]


class Connection:
    """A connection of the toolkit that is awaited, with the driver's own for statements that go past the toolkit.

    The toolkit has the like of it beside its ORM, which would be a tenth of a start.
    """

    __slots__ = ("core", "driver")

    def __init__(self, core: CoreConnection) -> None:
        """Take one that is connected."""
        self.core = core
        self.driver: Any = core.connection.driver_connection

    async def execute(self, statement: Executable, parameters: Parameters | None = None) -> Found:
        """Run a statement; a list of parameters runs it for each of them. All rows are there when it ends."""
        return await greenlet_spawn(self.core.execute, statement, parameters)

    async def scalar(self, statement: Executable, parameters: Parameters | None = None) -> Any:
        """Give the first column of the first row, None when there is no row."""
        return (await self.execute(statement, parameters)).scalar()

    async def scalars(self, statement: Executable, parameters: Parameters | None = None) -> ScalarResult[Any]:
        """Give the first column of each row."""
        return (await self.execute(statement, parameters)).scalars()


class Pool:
    """At most `size` connections of an engine that has no pool of its own; the one that was used last goes first."""

    def __init__(self, engine: Engine, size: int, timeout: float) -> None:
        """Connect to nothing yet; `timeout` is how many seconds a caller waits for its turn."""
        self._engine = engine
        self._timeout = timeout
        self._room = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._closed = False
        self.in_use = 0

    def connection(self) -> "Lending":
        """Lend a connection. TimeoutError when none gets free in time; whatever connecting raises.

        One that its user or its server has closed meanwhile is replaced.
        """
        return Lending(self)

    async def take(self) -> Connection:
        """Give a connection that is to be given back."""
        await self._enter()
        try:
            return self._open_one() or await self._connect()
        except BaseException:
            self._leave()
            raise

    def give_back(self, connection: Connection) -> None:
        """Take a connection back; one that is closed by now is let go."""
        try:
            if self._closed or connection.core.invalidated or connection.driver.is_closed():
                _drop(connection)
            else:
                self._idle.append(connection)
        finally:
            self._leave()

    async def close(self) -> None:
        """Close what is idle now, and what is in use when it comes back."""
        self._closed = True
        while self._idle:
            await greenlet_spawn(self._idle.pop().core.close)

    async def _enter(self) -> None:
        if self._room.locked():
            async with asyncio.timeout(self._timeout):
                await self._room.acquire()
        else:
            await self._room.acquire()
        self.in_use += 1

    def _leave(self) -> None:
        self.in_use -= 1
        self._room.release()

    def _open_one(self) -> Connection | None:
        """Give an idle connection; after a server's restart nobody meets one that is dead."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.driver.is_closed():
                return connection
            _drop(connection)
        return None

    async def _connect(self) -> Connection:
        return Connection(await greenlet_spawn(self._engine.connect))


class Lending:
    """A connection that is lent for a block; a class, since a generator costs as much as half a statement."""

    __slots__ = ("_connection", "_pool")
    _connection: Connection

    def __init__(self, pool: Pool) -> None:
        """Take none yet."""
        self._pool = pool

    async def __aenter__(self) -> Connection:
        """Take one."""
        self._connection = await self._pool.take()
        return self._connection

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Give it back."""
        self._pool.give_back(self._connection)


def _drop(connection: Connection) -> None:
    """Let a connection go, without waiting for its server."""
    if not connection.core.closed:
        connection.core.invalidate()
        connection.core.close()
