"""Each write of an operation names its fence: once that is gone it writes nothing, also while the operation runs on
elsewhere under another one, and when it is over.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.domain.ids import fresh, fresh_uuid
from app.domain.messages import Message
from app.store import claims, inbound, messages, settling, streams, summaries
from app.store.claims import Claim
from app.store.database import Connection
from app.store.messages import NewMessage
from app.store.settling import Ended
from app.store.summaries import SummaryRecord
from tests.databases import execute, rows
from tests.store.test_settling import KEY, running

ROUND: dict[str, Any] = {"calls": [], "results": [], "usage": {}}
WRITTEN = """
SELECT i.touched, cardinality(i.journal) AS rounds, i.status, s.status AS stream,
    (SELECT count(*) FROM rolling_summaries) AS summaries, (SELECT count(*) FROM messages) AS messages
FROM inbound_messages i, streams s
"""

Write = Callable[[Connection, Claim, Ended], Awaitable[bool]]


async def touch(connection: Connection, claim: Claim, ended: Ended) -> bool:
    return await inbound.touch(connection, KEY, claim.operation, ended.end.fence)


async def journal(connection: Connection, claim: Claim, ended: Ended) -> bool:
    return await inbound.journal(connection, KEY, claim.operation, ended.end.fence, place=1, entry=ROUND)


async def summary(connection: Connection, _: Claim, ended: Ended) -> bool:
    return await summaries.write(connection, SummaryRecord(KEY, version=1), seen=0, fence=ended.end.fence)


async def end(connection: Connection, _: Claim, ended: Ended) -> bool:
    return await settling.write(connection, ended)


async def run_again(connection: Connection, claim: Claim) -> None:
    """Do what another process does that runs the operation again."""
    replica = fresh_uuid()
    entry = await inbound.find(connection, KEY, claim.operation)
    held = await claims.reclaim(connection, KEY, claim.operation, replica)
    assert entry is not None
    assert held is not None
    await inbound.run_again(connection, entry, held.fence)
    await streams.run_again(connection, KEY, claim.stream_id, held.fence)


async def written(database: str) -> dict[str, object]:
    return dict((await rows(database, WRITTEN))[0])


@pytest.mark.parametrize("write", [touch, journal, summary, end])
async def test_a_write_lands_under_the_fence_of_its_operation(database: str, write: Write) -> None:
    async with running(database) as (store, claim, ended):
        before = await written(database)
        async with store.transaction() as connection:
            assert await write(connection, claim, ended)
        assert await written(database) != before


@pytest.mark.parametrize("write", [touch, journal, summary, end])
async def test_a_write_of_who_lost_an_operation_that_runs_again_elsewhere_lands_nowhere(
    database: str, write: Write
) -> None:
    async with running(database) as (store, claim, ended):
        await execute(database, "UPDATE replicas SET dead = true")
        async with store.transaction() as connection:
            await run_again(connection, claim)
        before = await written(database)
        async with store.transaction() as connection:
            assert not await write(connection, claim, ended)
        assert await written(database) == before


@pytest.mark.parametrize("write", [touch, journal, end])
async def test_a_write_of_an_operation_that_is_over_lands_nowhere(database: str, write: Write) -> None:
    async with running(database) as (store, claim, ended):
        async with store.transaction() as connection:
            assert await end(connection, claim, ended)
        before = await written(database)
        async with store.transaction() as connection:
            assert not await write(connection, claim, ended)
        assert await written(database) == before


async def test_a_summary_takes_the_place_of_the_version_that_was_read_alone(database: str) -> None:
    async with running(database) as (store, _, ended), store.transaction() as connection:
        fence = ended.end.fence
        for version, seen, lands in ((1, 0, True), (1, 0, False), (2, 1, True), (3, 1, False)):
            new = SummaryRecord(KEY, version=version, text=f"From {seen}.")
            assert await summaries.write(connection, new, seen=seen, fence=fence) is lands
        found = await summaries.find(connection, KEY)
        assert found is not None
        assert (found.version, found.text) == (2, "From 1.")


async def test_what_a_rolled_back_turn_had_said_is_not_read_from_either_end(database: str) -> None:
    async with running(database) as (store, _, __), store.transaction() as connection:
        new = [NewMessage(fresh("msg"), Message("user", turn), turn) for turn in ("kept", "rolled back", "last")]
        await messages.append(connection, KEY, new)
        await messages.leave_out(connection, KEY, ["rolled back"])
        for found in (await messages.oldest(connection, KEY), await messages.newest(connection, KEY, limit=9)):
            assert [entry.message.content for entry in found] == ["kept", "last"]


async def test_a_round_that_is_journalled_twice_is_there_once(database: str) -> None:
    async with running(database) as (store, claim, ended), store.transaction() as connection:
        assert await journal(connection, claim, ended)
        assert await journal(connection, claim, ended)
        assert await inbound.rounds(connection, KEY, claim.operation) == [ROUND]
