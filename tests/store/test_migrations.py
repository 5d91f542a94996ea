"""Migrations: up and down again, no drift from the tables in the code, and many processes at once."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import asyncpg
import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from app.domain.errors import ConfigurationError, DatabaseError
from app.store.database import driver_url
from app.store.migrate import LOCK, check_current, configuration, upgrade_async
from app.store.tables import metadata
from tests.databases import Databases, rows
from tests.servers import PATIENCE, ROOT, START_SECONDS, environment

T = TypeVar("T")

OURS = """
SELECT n.nspname || '.' || c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'S', 'v', 'm') ORDER BY 1
"""


@pytest.fixture
async def empty(databases: Databases) -> AsyncIterator[str]:
    """The URL of a database without tables."""
    async with databases.empty() as url:
        yield url


async def on(url: str, work: Callable[[Connection], T]) -> T:
    """Do something with a connection that is not async."""
    engine = create_async_engine(driver_url(url))
    try:
        async with engine.begin() as connection:
            return await connection.run_sync(work)
    finally:
        await engine.dispose()


async def names(url: str) -> set[str]:
    """Give the tables, sequences and views that there are."""
    return {row["name"].removeprefix("public.") for row in await rows(url, OURS)}


async def test_an_empty_database_is_brought_to_the_tables_of_the_code(empty: str) -> None:
    with pytest.raises(ConfigurationError, match="lacks the newest tables"):
        await check_current(empty)
    await upgrade_async(empty)

    await check_current(empty)
    assert set(metadata.tables) <= await names(empty)


async def test_the_migrations_and_the_tables_of_the_code_agree(database: str) -> None:
    # Raises when Alembic would write a migration that is not empty.
    await on(database, lambda connection: command.check(configuration(database, connection)))


async def test_down_to_the_base_nothing_of_ours_is_left(empty: str) -> None:
    await upgrade_async(empty)
    before = await names(empty)
    await on(empty, lambda connection: command.downgrade(configuration(empty, connection), "base"))
    assert await names(empty) == {"alembic_version"}

    await upgrade_async(empty)
    assert await names(empty) == before


async def test_each_migration_goes_down_and_up_by_itself(empty: str) -> None:
    revisions = [
        script.revision for script in reversed([*ScriptDirectory.from_config(configuration(empty)).walk_revisions()])
    ]
    for revision in revisions:
        await upgrade_async(empty, revision)
        down = "base" if revision == revisions[0] else "-1"
        await on(empty, lambda connection, down=down: command.downgrade(configuration(empty, connection), down))  # type: ignore[misc]
        await upgrade_async(empty, revision)
    await check_current(empty)


async def test_a_second_run_changes_nothing(database: str) -> None:
    before = await rows(database, "SELECT oid, relname FROM pg_class ORDER BY oid")
    await upgrade_async(database)
    assert await rows(database, "SELECT oid, relname FROM pg_class ORDER BY oid") == before


async def test_a_server_does_not_start_on_tables_that_are_not_there(empty: str) -> None:
    code, output = await run(empty, "serve")
    assert code == 1
    assert "python -m app migrate" in output
    assert "Traceback" not in output


async def test_a_database_that_is_away_is_told_in_a_sentence() -> None:
    with pytest.raises(DatabaseError, match="can't be reached"):
        await check_current("postgresql://nobody@127.0.0.1:1/nothing")


@asynccontextmanager
async def held_lock(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Hold the lock that migrations take, until the block ends."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", LOCK)
        yield connection
    finally:
        await connection.close()


async def test_a_migration_of_a_database_that_is_away_is_told_in_a_sentence() -> None:
    with pytest.raises(DatabaseError, match=r"^The database can't be reached: .*Check DATABASE_URL"):
        await upgrade_async("postgresql://u@127.0.0.1:1/x")


@pytest.mark.slow
async def test_two_processes_that_migrate_at_once_wait_for_each_other(empty: str) -> None:
    async with held_lock(empty) as holder:
        both = [asyncio.create_task(run(empty, "migrate")) for _ in range(2)]
        query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        async with asyncio.timeout(START_SECONDS):
            while await holder.fetchval(query) < 2:  # noqa: ASYNC110 - the database sets no event
                await asyncio.sleep(0.02)
        assert await names(empty) == set()
    ended = await asyncio.gather(*both)

    assert [code for code, _ in ended] == [0, 0], ended
    await check_current(empty)


async def run(url: str, verb: str) -> tuple[int, str]:
    """Run the command line in a process of its own; give its exit code and what it wrote."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app", verb),
        cwd=ROOT / "tests",
        env=environment(url, None, {}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(START_SECONDS + PATIENCE):
        output, _ = await process.communicate()
    return process.returncode or 0, output.decode()
