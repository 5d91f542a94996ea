"""The pool: connections are lent as they are, and one that is closed is lent to nobody."""

import asyncio

import pytest
from sqlalchemy import text

from app.domain.errors import DatabaseError
from app.store.database import Database

PID = text("SELECT pg_backend_pid()")


async def pid_of(store: Database) -> int:
    async with store.statement() as connection:
        return int(await connection.scalar(PID) or 0)


async def test_the_connection_that_was_used_last_is_the_next_to_be_used(shared_database: str) -> None:
    store = Database(shared_database)
    try:
        async with store.statement() as one, store.statement() as other:
            assert await one.scalar(PID) != await other.scalar(PID)
            assert store.checked_out == 2
            last = await one.scalar(PID)
        assert store.checked_out == 0
        assert [await pid_of(store) for _ in range(3)] == [last] * 3
    finally:
        await store.close()


async def test_a_connection_that_was_closed_is_replaced(shared_database: str) -> None:
    store = Database(shared_database, pool_size=1)
    try:
        first = await pid_of(store)
        async with store.statement() as connection:
            connection.driver.terminate()
        second = await pid_of(store)
        assert second != first
        async with store.statement() as connection:
            driver = connection.driver
        driver.terminate()
        assert await pid_of(store) not in {first, second}
    finally:
        await store.close()


async def test_who_waits_for_a_connection_waits_for_so_long_and_the_next_one_gets_it(shared_database: str) -> None:
    store = Database(shared_database, pool_size=1, pool_timeout=0.05)
    try:
        async with store.statement():
            with pytest.raises(DatabaseError):
                await pid_of(store)
        assert await pid_of(store)
        assert store.checked_out == 0
    finally:
        await store.close()


async def test_who_stops_waiting_for_a_connection_leaves_it_to_the_others(shared_database: str) -> None:
    store = Database(shared_database, pool_size=1)
    try:
        async with store.statement():
            waiting = [asyncio.create_task(pid_of(store)) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert found[1] == found[2]
    finally:
        await store.close()


async def test_a_connection_that_is_in_use_when_the_pool_closes_is_closed_when_it_comes_back(
    shared_database: str,
) -> None:
    store = Database(shared_database)
    async with store.statement() as connection:
        driver = connection.driver
        await store.close()
        assert await connection.scalar(PID)
    assert driver.is_closed()
