"""The engine and its pool. A connection is held for one transaction or one statement, never across a model call."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar

import asyncpg
from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.pool import NullPool

from app.domain.errors import ConfigurationError, DatabaseError
from app.domain.jsontext import dumps_text, loads
from app.store import pool
from app.store.pool import Lending, Pool

Connection = pool.Connection
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

TRANSACTION_GUARD: Final = """
SELECT set_config('transaction_timeout', '12000', false)
WHERE current_setting('server_version_num')::int >= 170000
"""
"""The other guards don't see a process that is frozen between preparing a statement and executing it. From 17 on;
before, whoever takes over ends such sessions (`replicas.end_stuck`)."""

_MISSING_GUARDS: Final = text("""
SELECT name FROM pg_settings WHERE setting = '0' AND name IN
    ('idle_in_transaction_session_timeout', 'lock_timeout', 'statement_timeout', 'transaction_timeout') ORDER BY name
""")

POOLED: Final[dict[str, Any]] = {
    "statement_cache_size": 0,
    "prepared_statement_cache_size": 0,
    "prepared_statement_name_func": str,
}
"""Arguments for a pooler in transaction mode: a named statement would stay in a session that another client gets."""

T = TypeVar("T")
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_STATEMENT_SECONDS: Final = 22.0
"""A little more than `statement_timeout`: a server that no longer answers at all must not hold a caller."""

_RESERVED: Final = 2
"""Connections beside the pool, for the lease and the event log: they must not queue behind requests."""

_LOST: Final = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a server that shuts down has told an idle connection so, which confuses the driver
)
_LOST_STATES: Final = ("08", "57P", "57014", "53", "40", "55P03", "55000", "25P03", "25P04", "26000")


def driver_url(url: str, setting: str = "DATABASE_URL") -> str:
    """Give the URL in the form the driver takes; ConfigurationError, which names the setting, when it is none."""
    try:
        parsed = make_url(url)
    except Exception as error:
        message = f"{setting} can't be read. It has the form postgresql://user:password@host:5432/database."
        raise ConfigurationError(message) from error
    if parsed.get_backend_name() not in {"postgresql", "postgres"}:
        message = f"{setting} names {parsed.get_backend_name()}; Fermata needs PostgreSQL 15 or later."
        raise ConfigurationError(message)
    query = {key: value for key, value in parsed.query.items() if key != "sslmode"}
    sslmode = parsed.query.get("sslmode")
    if isinstance(sslmode, str):
        query["ssl"] = sslmode
    return parsed.set(drivername="postgresql+asyncpg", query=query).render_as_string(hide_password=False)


def is_lost(error: BaseException) -> bool:
    """Tell whether the error leaves the outcome unknown or asks for another try, rather than naming a fault of ours."""
    cause = error
    if isinstance(error, DBAPIError):
        if error.connection_invalidated:
            return True
        cause = getattr(error.orig, "__cause__", None) or error
    if isinstance(cause, ValueError):
        # The driver has no separate class for a value that it can't send.
        return False
    if isinstance(cause, (*_LOST, DatabaseError)):
        return True
    state = str(getattr(cause, "sqlstate", None) or "")
    if isinstance(error, InterfaceError | OperationalError) and not state:
        return True
    return state.startswith(_LOST_STATES)


class OutcomeUnknownError(Exception):
    """The database could not be asked whether a transaction landed, and this process may not go on asking."""


class Database:
    """One Postgres, through one pool of at most `pool_size` connections and a few that are reserved.

    With `pooled` the URL leads to a pooler in transaction mode: nothing is kept in a session there, so the guards must
    be set on the role or the database.
    """

    def __init__(self, url: str, *, pool_size: int = 10, pool_timeout: float = 10.0, pooled: bool = False) -> None:
        """Make the pools; nothing connects before the first use. `url` is any Postgres URL."""
        self.url = driver_url(url)
        self._pooled = pooled
        self._pool = self._made(pool_size, pool_timeout)
        self._reserved = self._made(_RESERVED, pool_timeout)

    def _made(self, size: int, timeout: float) -> Pool:
        session = POOLED if self._pooled else {"server_settings": GUARDS}
        engine = create_engine(
            self.url,
            isolation_level="AUTOCOMMIT",  # `transaction` begins and ends them on the driver, for its statements too
            poolclass=NullPool,
            pool_reset_on_return=None,
            hide_parameters=True,  # an error's text is logged, and what users say is not
            json_serializer=dumps_text,
            json_deserializer=loads,
            connect_args={"timeout": 5, "command_timeout": _STATEMENT_SECONDS, **session},
        )
        if not self._pooled:
            event.listen(engine.pool, "connect", _guard)
        return Pool(engine, size, timeout)

    @asynccontextmanager
    async def transaction(self, *, reserved: bool = False) -> AsyncIterator[Connection]:
        """One transaction: committed when the block ends, rolled back when it raises.

        Raises DatabaseError when the database is away, for which the outcome is unknown. `reserved` takes a connection
        that no request can have.
        """
        lender = self._reserved if reserved else self._pool
        with _telling_of_loss():
            async with lender.connection() as connection, _begun(connection.driver):
                yield connection

    def statement(self) -> AbstractAsyncContextManager[Connection]:
        """A connection on which each statement is a transaction by itself: two round trips less. Raises the same."""
        # Preparing and executing are two visits, and a pooler may send them to two servers.
        return self.transaction() if self._pooled else _Telling(self._pool)

    @asynccontextmanager
    async def driver(self) -> AsyncIterator[Any]:
        """A reserved connection of the driver, for statements whose cost matters.

        Each statement is its own transaction. A failure closes the connection, since only the driver knows its state.
        """
        async with self._reserved.connection() as connection:
            driver = connection.driver
            try:
                if self._pooled:
                    async with driver.transaction():
                        yield driver
                else:
                    yield driver
            except BaseException:
                driver.terminate()
                raise

    async def read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Read, again and again while the database is away; each statement sees what is committed when it begins."""
        pause = _FIRST_PAUSE
        while True:
            try:
                async with self.statement() as connection:
                    return await work(connection)
            except DatabaseError:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def land(
        self,
        work: Callable[[Connection], Awaitable[T]],
        landed: Callable[[Connection], Awaitable[T | None]],
        *,
        give_up: Callable[[], bool],
        patience: float | None = None,
        alone: bool = False,
    ) -> T:
        """Run a transaction until its outcome is known; `alone` says that `work` is one statement and needs none.

        After a commit whose answer was lost nobody knows whether it landed, so each further try first asks `landed`
        (which locks the conversation, so that a commit still under way is waited for); its answer, if any, is the
        outcome. While no commit was tried, `patience` seconds bound the tries: then DatabaseError, and nothing landed.
        Raises OutcomeUnknownError when `give_up` says so, and whatever `work` raises for reasons of its own.
        """
        loop = asyncio.get_running_loop()
        began, pause, unknown = loop.time(), _FIRST_PAUSE, False
        while True:
            worked = False
            try:
                async with self.statement() if alone and not unknown else self.transaction() as connection:
                    known = await landed(connection) if unknown else None
                    if known is None:
                        worked = alone
                        known = await work(connection)
                        worked = True
            except Exception as error:
                if not is_lost(error):
                    raise
                unknown = unknown or worked
                if give_up():
                    raise OutcomeUnknownError from error
                if patience is not None and not unknown and loop.time() - began >= patience:
                    raise
            else:
                return known
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def insist(self, work: Callable[[Connection], Awaitable[None]], *, give_up: Callable[[], bool]) -> None:
        """Run a transaction until it has landed; doing it twice must be the same as once."""

        async def never(_: Connection) -> bool | None:
            return None

        async def done(connection: Connection) -> bool:
            await work(connection)
            return True

        await self.land(done, never, give_up=give_up)

    async def missing_guards(self) -> list[str]:
        """Give the timeouts that a pooler's sessions lack. Connections of our own set them, so nothing is asked."""
        if not self._pooled:
            return []
        async with self.transaction() as connection:
            return list((await connection.scalars(_MISSING_GUARDS)).all())

    async def ping(self) -> bool:
        """Tell whether the database answers."""
        try:
            async with self._pool.connection() as connection:
                await connection.execute(text("SELECT 1"))
        except Exception as error:  # any failure is the answer
            if not is_lost(error) and not isinstance(error, DBAPIError):
                raise
            return False
        return True

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()
        await self._reserved.close()

    @property
    def checked_out(self) -> int:
        """How many connections are in use."""
        return self._pool.in_use + self._reserved.in_use


class _Telling(Lending):
    """A connection that is lent; DatabaseError tells that it, or the database, is lost."""

    __slots__ = ()

    async def __aenter__(self) -> Connection:
        try:
            return await super().__aenter__()
        except Exception as error:
            _tell_of_loss(error)
            raise

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await super().__aexit__(kind, error, trace)
        if isinstance(error, Exception):
            _tell_of_loss(error)


@contextmanager
def _telling_of_loss() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        _tell_of_loss(error)
        raise


def _tell_of_loss(error: Exception) -> None:
    """Raise DatabaseError if the error means that the database is lost and does not say so yet."""
    if is_lost(error) and not isinstance(error, DatabaseError):
        message = "The database is out of reach; try again in a moment."
        raise DatabaseError(message, retry_after=1) from error


@asynccontextmanager
async def _begun(driver: Any) -> AsyncIterator[None]:
    """One transaction on the driver. A connection whose state is not known afterwards is closed.

    That goes for one that was broken off while it began, too: the driver would take the next for a part of it.
    """
    transaction = driver.transaction()
    try:
        await transaction.start()
        yield
        await transaction.commit()
    except BaseException:
        try:
            await transaction.rollback()
        except Exception:  # noqa: BLE001 - what broke the transaction is what is to be told
            driver.terminate()
        except BaseException:
            driver.terminate()
            raise
        raise


def _guard(connection: Any, _: Any) -> None:
    connection.run_async(lambda driver: driver.execute(TRANSACTION_GUARD))
