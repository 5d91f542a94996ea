"""Transactions on the driver's own connections: what was broken off leaves nothing to the next one."""

import asyncio

import pytest
from sqlalchemy import text

from app.store.database import Database
from tests.databases import rows
from tests.kill_points import KillPoints, kill_points

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
