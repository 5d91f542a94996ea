"""Sweeps pass by what another process holds, which may be frozen: neither it nor what it holds keeps them waiting."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from sqlalchemy import text

from app.domain.ids import fresh_uuid
from app.store import claims, replicas, retention
from app.store.claims import Claim
from app.store.database import Connection
from tests.databases import execute, rows
from tests.store.test_settling import KEY, running

GONE = (
    "UPDATE replicas SET dead = true",
    "INSERT INTO replicas (id, expires_at) VALUES (gen_random_uuid(), now() - interval '1 minute')",
    "UPDATE streams SET ended_at = now()",
)
STATE = """
SELECT (SELECT count(*) FROM replicas WHERE dead) AS dead, (SELECT bool_or(expired) FROM streams) AS expired,
    fence, running_replica FROM conversations
"""

Sweep = Callable[[Connection, Claim], Awaitable[object]]


async def mark(connection: Connection, _: Claim) -> object:
    return await replicas.mark_expired(connection, timedelta(0))


async def run_again(connection: Connection, claim: Claim) -> object:
    return await claims.reclaim(connection, KEY, claim.operation, fresh_uuid())


async def end(connection: Connection, claim: Claim) -> object:
    return await claims.seize(connection, KEY, claim.operation, only_dead=True)


async def expire(connection: Connection, claim: Claim) -> object:
    return await retention.expire(connection, KEY, claim.stream_id)


SWEEPS = [(mark, "replicas"), (run_again, "conversations"), (end, "conversations"), (expire, "streams")]


@pytest.mark.parametrize(("sweep", "table"), SWEEPS)
async def test_a_sweep_passes_by_what_is_held_and_takes_it_once_it_is_let_go(
    database: str, sweep: Sweep, table: str
) -> None:
    async with running(database) as (store, claim, _):
        await execute(database, *GONE)
        before = dict((await rows(database, STATE))[0])
        async with store.transaction() as frozen:
            await frozen.execute(text(f"SELECT 1 FROM {table} FOR UPDATE"))  # noqa: S608 - a name of this module
            async with store.transaction() as connection:
                assert not await sweep(connection, claim)
        assert dict((await rows(database, STATE))[0]) == before
        async with store.transaction() as connection:
            assert await sweep(connection, claim)
        assert dict((await rows(database, STATE))[0]) != before


async def test_what_a_process_runs_that_lives_is_not_swept(database: str) -> None:
    async with running(database) as (store, claim, _):
        for sweep in (mark, run_again, end):
            async with store.transaction() as connection:
                assert not await sweep(connection, claim)
        async with store.transaction() as connection:
            assert await replicas.orphans(connection, 10) == []
        await execute(database, "UPDATE replicas SET dead = true")
        async with store.transaction() as connection:
            assert await replicas.orphans(connection, 10) == [(KEY, claim.operation)]


async def test_a_sweep_ends_only_the_operation_that_it_has_found(database: str) -> None:
    """It may have ended since then, and another one of a process that died as well may run."""
    async with running(database) as (store, _, __):
        await execute(database, "UPDATE replicas SET dead = true")
        for only_dead in (True, False):
            async with store.transaction() as connection:
                assert await claims.seize(connection, KEY, fresh_uuid(), only_dead=only_dead) is None
        async with store.transaction() as connection:
            assert await claims.reclaim(connection, KEY, fresh_uuid(), fresh_uuid()) is None


@pytest.mark.parametrize(("asked", "again"), [("fence", False), ("fence - 1", True), ("NULL", True)])
async def test_an_operation_that_was_asked_to_end_is_not_run_again(
    database: str,
    asked: str,
    again: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    async with running(database) as (store, claim, _):
        intent = f"UPDATE conversations SET cancel_fence = {asked}"  # noqa: S608 - words of this module
        await execute(database, "UPDATE replicas SET dead = true", intent)
        async with store.transaction() as connection:
            assert (await run_again(connection, claim) is not None) == again
