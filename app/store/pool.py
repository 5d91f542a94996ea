"""A pool that hands out open connections as they are.

The toolkit's own pool makes its objects anew for each use, which costs more than a small statement does. This one
keeps them: between two uses a connection is a place in a list.
"""

import asyncio
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine


class Connection(AsyncConnection):
    """A connection of the toolkit with the driver's own, for statements that go past the toolkit."""

    __slots__ = ("driver",)
    driver: Any


class Pool:
    """At most `size` connections of an engine that has no pool of its own; the one that was used last goes first."""

    def __init__(self, engine: AsyncEngine, size: int, timeout: float) -> None:
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
            if self._closed or connection.invalidated or connection.driver.is_closed():
                _drop(connection)
            else:
                self._idle.append(connection)
        finally:
            self._leave()

    async def close(self) -> None:
        """Close what is idle now, and what is in use when it comes back."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()
        await self._engine.dispose()

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
        connection = Connection(self._engine)
        _ = await connection.start()  # it is the same one
        connection.driver = (await connection.get_raw_connection()).driver_connection
        return connection


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


def _drop(connection: AsyncConnection) -> None:
    """Let a connection go, without waiting for its server."""
    own = connection.sync_connection
    if own is not None and not own.closed:
        own.invalidate()
        own.close()
