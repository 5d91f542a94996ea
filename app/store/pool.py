"""A pool that hands out open connections as they are.

The toolkit's own pool makes its objects anew for each use, which costs more than a small statement does. This one
keeps them: between two uses a connection is a place in a list.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

_DRIVER: Final = "driver"


def driver_of(connection: AsyncConnection) -> Any:
    """Give the driver's own connection, inside the same transaction."""
    return connection.info[_DRIVER]


class Pool:
    """At most `size` connections of an engine that has no pool of its own; the one that was used last goes first."""

    def __init__(self, engine: AsyncEngine, size: int, timeout: float) -> None:
        """Connect to nothing yet; `timeout` is how many seconds a caller waits for its turn."""
        self._engine = engine
        self._timeout = timeout
        self._room = asyncio.Semaphore(size)
        self._idle: list[AsyncConnection] = []
        self._closed = False
        self.in_use = 0
        event.listen(engine.sync_engine.pool, "connect", _keep_driver)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection. TimeoutError when none gets free in time; whatever connecting raises.

        One that its user or its server has closed meanwhile is replaced.
        """
        await self._enter()
        try:
            connection = self._open_one() or await self._engine.connect()
            try:
                yield connection
            finally:
                self._take_back(connection)
        finally:
            self.in_use -= 1
            self._room.release()

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

    def _open_one(self) -> AsyncConnection | None:
        """Give an idle connection; after a server's restart nobody meets one that is dead."""
        while self._idle:
            connection = self._idle.pop()
            if _is_open(connection):
                return connection
            _drop(connection)
        return None

    def _take_back(self, connection: AsyncConnection) -> None:
        if self._closed or not _is_open(connection):
            _drop(connection)
        else:
            self._idle.append(connection)


def _is_open(connection: AsyncConnection) -> bool:
    return not connection.invalidated and not driver_of(connection).is_closed()


def _drop(connection: AsyncConnection) -> None:
    """Let a connection go, without waiting for its server."""
    own = connection.sync_connection
    if own is not None and not own.closed:
        own.invalidate()
        own.close()


def _keep_driver(connection: Any, record: Any) -> None:
    record.info[_DRIVER] = connection.driver_connection
