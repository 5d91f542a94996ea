"""Migrations: Alembic, under an advisory lock, so that several processes may start at once.

Alembic is imported when there is something to do: most starts find the newest tables.
"""

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg
from sqlalchemy import URL, Connection, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool
from sqlalchemy.util import greenlet_spawn

from app.domain.errors import ConfigurationError, DatabaseError
from app.store.database import driver_url

if TYPE_CHECKING:
    from alembic.config import Config

LOCK: Final = 7_316_250_441
_UNREACHED: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)
VECTORS: Final = """
DO $$ BEGIN
    CREATE EXTENSION IF NOT EXISTS vector;
EXCEPTION WHEN OTHERS THEN
    RAISE NOTICE 'pgvector is not to be had: documents and memories are found by their words alone';
END $$
"""
"""The extension is made where the server has it and this user may; nothing needs it but the search by meaning."""

_ANY: Final = "SELECT to_regclass('alembic_version')"
_WHICH: Final = "SELECT version_num FROM alembic_version"

ROOT: Final = Path(__file__).resolve().parents[2]
_REVISION: Final = re.compile(r'^(down_)?revision = "(\w+)"', re.MULTILINE)


def configuration(url: str, connection: Connection | None = None) -> "Config":
    """Give Alembic's configuration for a database."""
    from alembic.config import Config  # noqa: PLC0415 - takes long, and most starts need none of it

    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    config.attributes["url"] = url
    config.attributes["connection"] = connection
    return config


def newest(folder: Path = ROOT / "migrations" / "versions") -> str:
    """Give the revision of the newest tables: the one that no other one follows."""
    names: set[str] = set()
    followed: set[str] = set()
    for file in folder.glob("*.py"):
        for down, name in _REVISION.findall(file.read_text(encoding="utf-8")):
            (followed if down else names).add(name)
    (last,) = names - followed
    return last


def _found(connection: Connection) -> str | None:
    """Give the revision of the database's tables; None when it has none."""
    if connection.scalar(text(_ANY)) is None:
        return None
    found: str | None = connection.scalar(text(_WHICH))
    return found


def _upgrade(connection: Connection, url: str, revision: str) -> None:
    connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": LOCK})
    connection.commit()
    try:
        due = revision != "head" or _found(connection) != newest()
        connection.commit()
        if due:
            from alembic import command  # noqa: PLC0415 - see `configuration`

            command.upgrade(configuration(url, connection), revision)
        connection.execute(text(VECTORS))
        connection.commit()
    finally:
        connection.rollback()
        connection.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": LOCK})
        connection.commit()


def _unreachable(error: BaseException) -> DatabaseError:
    return DatabaseError(f"The database can't be reached: {error}. Check DATABASE_URL, and that the server runs.")


async def upgrade_async(url: str, revision: str = "head") -> None:
    """Bring the database to `revision`; waits for another process that is doing the same.

    Raises DatabaseError when the database can't be reached.
    """
    engine = create_engine(driver_url(url), poolclass=NullPool)

    def connected() -> None:
        try:
            opened = engine.connect()
        except (*_UNREACHED, DBAPIError) as error:
            raise _unreachable(getattr(error, "orig", None) or error) from error
        with opened as connection:
            _upgrade(connection, url, revision)

    await greenlet_spawn(connected)


async def check_current(url: str) -> None:
    """Raise ConfigurationError unless the database has the newest tables, DatabaseError when it can't be reached."""
    try:
        found = await _told(make_url(driver_url(url)))
    except _UNREACHED as error:
        raise _unreachable(error) from error
    if found != newest():
        message = "The database lacks the newest tables. Run `python -m app migrate`, or set FERMATA_AUTO_MIGRATE=true."
        raise ConfigurationError(message)


async def _told(url: URL) -> str | None:
    """Do what `_found` does on the driver's own connection, which is open in a third of the time.

    In a transaction, and with no statement kept, since the URL may lead to a pooler.
    """
    _, arguments = url.get_dialect()().create_connect_args(url)
    connection = await asyncpg.connect(**arguments, timeout=5, statement_cache_size=0)
    try:
        async with connection.transaction():
            if await connection.fetchval(_ANY) is None:
                return None
            found: str | None = await connection.fetchval(_WHICH)
            return found
    finally:
        await connection.close(timeout=5)


def upgrade(url: str, revision: str = "head") -> None:
    """Do what `upgrade_async` does, where no event loop runs."""
    asyncio.run(upgrade_async(url, revision))
