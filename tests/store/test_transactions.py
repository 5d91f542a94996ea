"""Transactions on the driver's own connections: what was broken off leaves nothing to the next one."""

import asyncio

import asyncpg
import pytest
from sqlalchemy import text

from app.domain.errors import DatabaseError
from app.store.database import Database, is_lost
from app.store.embedded.supervisor import EmbeddedPostgres
from tests.databases import rows
from tests.kill_points import KillPoints, kill_points
from tests.postgres import passable_folder

WRITE = text("INSERT INTO replicas (id, expires_at) VALUES (gen_random_uuid(), now())")
WRITTEN = "SELECT 1 FROM replicas"
STATES = "SELECT state FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


async def asked(points: KillPoints, *, commit: bool) -> None:
    """Wait until a BEGIN, or a COMMIT, is on its way to the database."""
    async with asyncio.timeout(30):
        while not any(link._committing if commit else link._transaction for link in points._links):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("where", ["at its begin", "at a statement", "at its commit"])
async def test_a_transaction_that_is_broken_off_leaves_the_next_one_on_the_connection_its_own(
    database: str, where: str
) -> None:
    async with kill_points(database) as points:
        store = Database(points.url, pool_size=1)
        try:

            async def broken_off() -> None:
                async with store.transaction() as connection:
                    if where == "at a statement":
                        await connection.execute(text("SELECT pg_sleep(3600)"))
                    if where == "at its commit":
                        points.part()

            async with store.transaction() as connection:
                await connection.execute(text("SELECT 1"))
            if where == "at its begin":
                points.part()
            breaking = asyncio.create_task(broken_off())
            await asked(points, commit=where == "at its commit")
            breaking.cancel()
            points.join()
            assert isinstance((await asyncio.gather(breaking, return_exceptions=True))[0], asyncio.CancelledError)
            for count in (1, 2):
                async with store.transaction() as connection:
                    await connection.execute(WRITE)
                assert len(await rows(database, WRITTEN)) == count
            assert {row["state"] for row in await rows(database, STATES)} <= {"idle"}
        finally:
            await store.close()


@pytest.mark.slow
async def test_while_a_server_restarts_a_transaction_is_told_that_the_database_is_away_and_nothing_else() -> None:
    with passable_folder() as folder:
        server = EmbeddedPostgres(folder / "data", fast=True)
        await server.start()
        store = Database(server.dsn, pool_size=5)
        told: set[str] = set()
        over = asyncio.Event()

        async def work() -> None:
            while not over.is_set():
                try:
                    async with store.transaction() as connection:
                        await connection.driver.fetch("SELECT 1")
                        await connection.driver.fetch("SELECT 2")
                except DatabaseError:
                    await asyncio.sleep(0.01)
                except Exception as error:  # noqa: BLE001 - what it is fails the test
                    told.add(repr(error))

        working = [asyncio.create_task(work()) for _ in range(20)]
        for _ in range(6):
            await server.stop()
            await server.start()
            async with asyncio.timeout(30):
                while not await store.ping():  # noqa: ASYNC110 - the server is back
                    await asyncio.sleep(0.05)
        over.set()
        await asyncio.gather(*working)
        await store.close()
        await server.stop()
    assert told == set()


def test_what_a_connection_says_that_its_server_has_left_counts_as_lost() -> None:
    confused = asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")
    assert is_lost(confused)
