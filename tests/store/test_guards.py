"""What keeps a process that hangs inside a transaction from blocking the one that takes over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from sqlalchemy import text
from sqlalchemy.engine import make_url
from structlog.testing import capture_logs

from app.domain.ids import fresh_uuid
from app.store import replicas
from app.store.database import Database
from tests.databases import execute, rows
from tests.kill_points import kill_points
from tests.stage import running_stage

ALL = ["idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout", "transaction_timeout"]
KEEPALIVES = ["tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count"]
FIND = "SELECT stream.stream_id FROM streams stream WHERE stream.conversation = $1"
STATES = "SELECT state, wait_event FROM pg_stat_activity WHERE pid = $1"


async def set_for_all(url: str, guards: list[str]) -> None:
    name = make_url(url).database
    await execute(url, *(f"ALTER DATABASE \"{name}\" SET {guard} = '9s'" for guard in guards))


async def lines(database: str, **settings: Any) -> list[list[str]]:
    """Start a runtime, and give the guards that each warning names."""
    with capture_logs() as logged:
        async with running_stage(database, listen_database_url=database, **settings):
            pass
    return [line["settings"] for line in logged if line["event"] == "database.guards_missing"]


async def test_behind_a_pooler_without_guards_a_start_says_so_once(database: str) -> None:
    assert await lines(database, database_pooler="transaction") == [ALL]
    await set_for_all(database, ALL[:2])
    assert await lines(database, database_pooler="transaction") == [ALL[2:]]
    await set_for_all(database, ALL)
    assert await lines(database, database_pooler="transaction") == []


async def test_without_a_pooler_nothing_is_said_since_each_connection_sets_its_guards(database: str) -> None:
    assert await lines(database) == []
    store = Database(database, pool_size=1)
    async with store.transaction() as connection:
        found = await connection.execute(text("SELECT name FROM pg_settings WHERE setting = '0'"))
        assert not {*ALL} & {*found.scalars()}
        asked = await connection.execute(text("SELECT name FROM pg_settings WHERE source = 'client'"))
        assert {*KEEPALIVES} <= {*asked.scalars()}
    await store.close()


@asynccontextmanager
async def hanging(url: str) -> AsyncIterator[int]:
    """Let a process without guards hang between preparing a statement and executing it; gives its session."""
    key = fresh_uuid()
    async with kill_points(url) as points:
        process = await asyncpg.connect(points.url)
        hold = points.hold("find", 1, key)
        await process.execute("BEGIN")
        await process.fetch(FIND, key)
        asking = asyncio.create_task(process.fetch(f"{FIND} FOR UPDATE", key))
        await hold.reached()
        yield process.get_server_pid()
        hold.drop()
        await asyncio.gather(asking, return_exceptions=True)
        process.terminate()


async def test_a_session_that_hangs_in_the_middle_of_a_statement_is_ended_and_no_other_is(database: str) -> None:
    store, idle = Database(database, pool_size=1), await asyncpg.connect(database)
    try:
        await idle.execute("BEGIN")
        async with hanging(database) as session:
            async with asyncio.timeout(30):
                while tuple((await rows(database, STATES, session))[0]) != ("active", "ClientRead"):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            async with store.transaction() as connection:
                assert await replicas.end_stuck(connection, 3600) == 0
                assert await replicas.end_stuck(connection, 0) == 1
            async with asyncio.timeout(30):
                while await rows(database, STATES, session):  # noqa: ASYNC110 - the session ends
                    await asyncio.sleep(0.01)
        assert await idle.fetchval("SELECT 1") == 1
    finally:
        await idle.close()
        await store.close()
