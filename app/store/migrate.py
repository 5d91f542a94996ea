"""Migrations: Alembic, under an advisory lock, so that several processes may start at once."""

import asyncio
from pathlib import Path
from typing import Final

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine

from app.domain.errors import ConfigurationError, DatabaseError
from app.store.database import POOLED, driver_url

LOCK: Final = 7_316_250_441
VECTORS: Final = """
DO $$ BEGIN
    CREATE EXTENSION IF NOT EXISTS vector;
EXCEPTION WHEN OTHERS THEN
    RAISE NOTICE 'pgvector is not to be had: documents and memories are found by their words alone';
END $$
"""
"""The extension is made where the server has it and this user may; nothing needs it but the search by meaning."""

ROOT: Final = Path(__file__).resolve().parents[2]


def configuration(url: str, connection: Connection | None = None) -> Config:
    """Give Alembic's configuration for a database."""
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    config.attributes["url"] = url
    config.attributes["connection"] = connection
    return config


def _upgrade(connection: Connection, url: str, revision: str) -> None:
    connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": LOCK})
    connection.commit()
    try:
        command.upgrade(configuration(url, connection), revision)
        connection.execute(text(VECTORS))
        connection.commit()
    finally:
        connection.rollback()
        connection.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": LOCK})
        connection.commit()


async def upgrade_async(url: str, revision: str = "head") -> None:
    """Bring the database to `revision`; waits for another process that is doing the same."""
    engine = create_async_engine(driver_url(url))
    try:
        async with engine.connect() as connection:
            await connection.run_sync(_upgrade, url, revision)
    finally:
        await engine.dispose()


async def check_current(url: str, *, pooled: bool = False) -> None:
    """Raise ConfigurationError unless the database has the newest tables, DatabaseError when it can't be reached.

    `pooled` tells that the URL leads to a pooler in transaction mode.
    """
    engine = create_async_engine(driver_url(url), connect_args=POOLED if pooled else {})
    try:
        async with engine.connect() as connection:
            found = await connection.run_sync(lambda sync: MigrationContext.configure(sync).get_current_revision())
    except (OSError, SQLAlchemyError, asyncpg.PostgresError) as error:
        message = f"The database can't be reached: {error}. Check DATABASE_URL, and that the server runs."
        raise DatabaseError(message) from error
    finally:
        await engine.dispose()
    newest = ScriptDirectory.from_config(configuration(url)).get_current_head()
    if found != newest:
        message = "The database lacks the newest tables. Run `python -m app migrate`, or set FERMATA_AUTO_MIGRATE=true."
        raise ConfigurationError(message)


def upgrade(url: str, revision: str = "head") -> None:
    """Do what `upgrade_async` does, where no event loop runs."""
    asyncio.run(upgrade_async(url, revision))
