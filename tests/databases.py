"""Databases for tests: one migrated template on the server of this process, and a copy for each test that asks."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import asyncpg
from sqlalchemy.engine import make_url

from app.store.migrate import upgrade_async
from tests.postgres import throwaway_postgres

OTHERS_OUT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""

EMPTY = """
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version' LOOP
        EXECUTE format('DELETE FROM %I', name);
    END LOOP;
END $$
"""


class Databases:
    """Makes databases on one server; `template` is migrated, and nothing stays connected to it."""

    def __init__(self, server: str, template: str) -> None:
        self._server = server
        self._template = template
        self._shared: str | None = None

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[str]:
        """Give the URL of a database with all tables, which one test after another uses: quicker than a fresh one.

        Whoever is still connected to it when the context is left is thrown out, and its rows are deleted.
        """
        if self._shared is None:
            await execute(self._server, f'CREATE DATABASE "test_shared" TEMPLATE "{self._template}"')
            self._shared = named(self._server, "test_shared")
        yield self._shared
        await execute(self._shared, OTHERS_OUT, EMPTY)

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[str]:
        """Give the URL of a database with all tables and no rows."""
        async with self._made(f'TEMPLATE "{self._template}"') as url:
            yield url

    @asynccontextmanager
    async def empty(self) -> AsyncIterator[str]:
        """Give the URL of a database without tables."""
        async with self._made("") as url:
            yield url

    @asynccontextmanager
    async def _made(self, how: str) -> AsyncIterator[str]:
        name = f"test_{secrets.token_hex(6)}"
        await execute(self._server, f'CREATE DATABASE "{name}" {how}')
        try:
            yield named(self._server, name)
        finally:
            await execute(self._server, f'DROP DATABASE "{name}" WITH (FORCE)')


@contextmanager
def databases() -> Iterator[Databases]:
    """Run a throw-away server with a migrated template in it; for a fixture of session scope."""
    template = "template_fermata"
    with throwaway_postgres() as server:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(execute(server, f'CREATE DATABASE "{template}"'))
            runner.run(upgrade_async(named(server, template)))
        yield Databases(server, template)


def named(server: str, database: str) -> str:
    """Give the URL of another database of the same server."""
    return make_url(server).set(database=database).render_as_string(hide_password=False)


async def execute(url: str, *statements: str) -> None:
    """Run statements, each in a transaction of its own."""
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def rows(url: str, query: str, *values: object) -> list[asyncpg.Record]:
    """Give the rows of a query."""
    connection = await asyncpg.connect(url)
    try:
        return list(await connection.fetch(query, *values))
    finally:
        await connection.close()
