"""The engine and its pool. A connection is held for one transaction or one statement, never across a model call."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import asyncpg
from sqlalchemy import text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from app.domain.errors import ConfigurationError
from app.domain.jsontext import dumps_text, loads

Connection = AsyncConnection
"""A connection inside a transaction: what every query function of the store takes."""

GUARDS: Final = {
    "idle_in_transaction_session_timeout": "5000",
    "lock_timeout": "4000",
    "statement_timeout": "20000",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
"""Set on each connection: a process that is frozen inside a transaction must not block the one that takes over."""

T = TypeVar("T")
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_LOST: Final = (OSError, TimeoutError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, PoolTimeoutError)
_LOST_STATES: Final = ("08", "57P", "53", "40", "55P03", "25P03")


def driver_url(url: str) -> str:
    """Give the URL in the form the driver takes; ConfigurationError when it is no Postgres URL."""
    try:
        parsed = make_url(url)
    except Exception as error:
        message = "DATABASE_URL can't be read. It has the form postgresql://user:password@host:5432/database."
        raise ConfigurationError(message) from error
    if parsed.get_backend_name() not in {"postgresql", "postgres"}:
        message = f"DATABASE_URL names {parsed.get_backend_name()}; Fermata needs PostgreSQL 15 or later."
        raise ConfigurationError(message)
    query = {key: value for key, value in parsed.query.items() if key != "sslmode"}
    sslmode = parsed.query.get("sslmode")
    if isinstance(sslmode, str):
        query["ssl"] = sslmode
    return parsed.set(drivername="postgresql+asyncpg", query=query).render_as_string(hide_password=False)


def is_lost(error: BaseException) -> bool:
    """Tell whether the error leaves the outcome unknown or asks for another try, rather than naming a fault of ours."""
    if isinstance(error, _LOST):
        return True
    if isinstance(error, DBAPIError):
        state = str(getattr(error.orig, "sqlstate", None) or "")
        return error.connection_invalidated or state.startswith(_LOST_STATES) or _is_driver_loss(error)
    return False


def _is_driver_loss(error: DBAPIError) -> bool:
    state = getattr(error.orig, "sqlstate", None)
    return isinstance(error, InterfaceError | OperationalError) and state is None


class OutcomeUnknownError(Exception):
    """The database could not be asked whether a transaction landed, and this process may not go on asking."""


class Database:
    """One Postgres, through one pool of at most `pool_size` connections."""

    def __init__(self, url: str, *, pool_size: int = 10, pool_timeout: float = 10.0) -> None:
        """Make the pool; nothing connects before the first use. `url` is any Postgres URL."""
        self.url = driver_url(url)
        self._engine: AsyncEngine = create_async_engine(
            self.url,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=pool_timeout,
            pool_pre_ping=False,
            pool_use_lifo=True,
            json_serializer=dumps_text,
            json_deserializer=loads,
            connect_args={"server_settings": GUARDS, "timeout": 5},
        )

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """One transaction: committed when the block ends, rolled back when it raises."""
        async with self._engine.begin() as connection:
            yield connection

    @asynccontextmanager
    async def driver(self) -> AsyncIterator[Any]:
        """The driver's own connection, for statements whose cost matters. Each statement is its own transaction."""
        async with self._engine.connect() as connection:
            raw = await connection.get_raw_connection()
            yield raw.driver_connection

    async def land(
        self,
        work: Callable[[Connection], Awaitable[T]],
        landed: Callable[[Connection], Awaitable[T | None]],
        *,
        give_up: Callable[[], bool],
    ) -> T:
        """Run a transaction until its outcome is known.

        After a lost connection nobody knows whether it was committed, so each further try first asks `landed` (which
        locks the conversation, so that a commit still under way is waited for); its answer, if any, is the outcome.
        Raises OutcomeUnknownError when `give_up` says so, and whatever `work` raises for reasons of its own.
        """
        pause = _FIRST_PAUSE
        again = False
        while True:
            try:
                async with self.transaction() as connection:
                    known = await landed(connection) if again else None
                    return known if known is not None else await work(connection)
            except Exception as error:
                if not is_lost(error):
                    raise
                if give_up():
                    raise OutcomeUnknownError from error
            again = True
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def ping(self) -> bool:
        """Tell whether the database answers."""
        try:
            async with self._engine.connect() as connection:
                await connection.execute(text("SELECT 1"))
        except Exception as error:  # any failure is the answer
            if not is_lost(error) and not isinstance(error, DBAPIError):
                raise
            return False
        return True

    async def close(self) -> None:
        """Close every connection."""
        await self._engine.dispose()

    @property
    def checked_out(self) -> int:
        """How many connections are in use."""
        return int(self._engine.pool.checkedout())  # type: ignore[attr-defined]
