"""T1 as one statement: for a conversation that nobody has, and that is still as the statement saw it when it began."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from app.domain.errors import ConversationBusyError, NotFoundError
from app.domain.ids import fresh, fresh_uuid, row_key, stream_id_for
from app.domain.messages import Message
from app.domain.turn import Caller, OperationKind
from app.store import acceptance, claims, inbound, replicas
from app.store.claims import Claim, ReplicaGoneError
from app.store.database import Connection, Database
from app.store.inbound import InboundRecord
from app.store.messages import NewMessage
from tests.databases import execute, rows

ADA = Caller("ada")
KEY = row_key("", "chat")
WAITING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
STORED = """
SELECT (SELECT count(*) FROM inbound_messages) AS operations, (SELECT count(*) FROM streams) AS streams,
    (SELECT count(*) FROM messages) AS messages, (SELECT count(*) FROM stream_events) AS batches
"""
HELD = """
INSERT INTO pending_external_tool_requests (
    conversation, pause_id, organization_id, conversation_id, user_id, session_id, persona_id, stream_id, turn_id,
    fence, state, tool_calls, results, requested_at
)
SELECT id, 'pause', '', 'chat', 'ada', 'chat', 'demo', 'stream', 'turn', fence, 'held', '[]', '[]', now()
FROM conversations
"""
NOTHING = {"operations": 0, "streams": 0, "messages": 0, "batches": 0}


@asynccontextmanager
async def replica(database: str) -> AsyncIterator[tuple[Database, UUID]]:
    """A process that lives."""
    store, own = Database(database), fresh_uuid()
    try:
        async with store.transaction() as connection:
            await replicas.register(connection, own, timedelta(minutes=5))
        yield store, own
    finally:
        await store.close()


def claim_of(own: UUID) -> Claim:
    return Claim(fresh_uuid(), own, KEY, ADA, "chat", "chat", "demo", stream_id_for(KEY))


async def accept(store: Database, claim: Claim) -> int | None:
    entry = InboundRecord(
        KEY, claim.operation, OperationKind.TURN, "running", claim.stream_id, "turn", 0, 1,
        touched=False, pause_id=None, payload={},
    )  # fmt: skip
    said = [NewMessage(fresh("msg"), Message("user", "Hello."), "turn")]
    rests = [b"\nevent: a\n\n", b"\nevent: b\n\n"]
    async with store.statement() as connection:
        return await acceptance.accept_free(connection, claim, entry, ephemeral=False, new=said, rests=rests)


async def taken(store: Database, claim: Claim, *, create: bool) -> int:
    async with store.transaction() as connection:
        return await claims.take(connection, claim, create=create)


async def left_idle(connection: Connection) -> None:
    """Do what an end does to its conversation."""
    await connection.driver.execute("UPDATE conversations SET running_operation = NULL")


async def test_a_new_conversation_is_made_and_the_fence_is_in_all_that_is_stored(database: str) -> None:
    async with replica(database) as (store, own):
        fence = await accept(store, claim_of(own))
        assert fence is not None
        assert dict((await rows(database, STORED))[0]) == {"operations": 1, "streams": 1, "messages": 1, "batches": 1}
        fences = "SELECT i.fence AS a, s.fence AS b, e.fence AS c FROM inbound_messages i, streams s, stream_events e"
        assert set(dict((await rows(database, fences))[0]).values()) == {fence}
        told = (await rows(database, "SELECT first_n, last_n, frames FROM stream_events"))[0]
        assert (told["first_n"], told["last_n"]) == (1, 2)
        assert bytes(told["frames"]) == b"id: %d-1\nevent: a\n\nid: %d-2\nevent: b\n\n" % (fence, fence)


async def test_a_conversation_on_which_an_operation_runs_or_that_is_anothers_is_not_taken(database: str) -> None:
    async with replica(database) as (store, own):
        first = await accept(store, claim_of(own))
        assert await accept(store, claim_of(own)) is None
        async with store.transaction() as connection:
            await left_idle(connection)
        assert await accept(store, replace(claim_of(own), caller=Caller("bob"))) is None
        later = await accept(store, claim_of(own))
        assert first is not None
        assert later is not None
        assert later > first


async def test_a_conversation_that_holds_a_pause_is_left_to_who_can_end_it(database: str) -> None:
    async with replica(database) as (store, own):
        async with store.transaction() as connection:
            await claims.take(connection, claim_of(own), create=True)
            await left_idle(connection)
        await execute(database, HELD)
        assert await accept(store, claim_of(own)) is None
        assert dict((await rows(database, STORED))[0]) == NOTHING


async def test_a_conversation_that_changed_while_its_lock_was_waited_for_is_not_taken(database: str) -> None:
    """What the operation before has left is not in what the statement sees."""
    async with replica(database) as (store, own):
        async with store.transaction() as connection:
            await claims.take(connection, claim_of(own), create=True)
        async with store.transaction() as connection:
            await left_idle(connection)
            accepting = asyncio.create_task(accept(store, claim_of(own)))
            async with asyncio.timeout(30):
                while not await rows(database, WAITING):  # noqa: ASYNC110 - the state is another process's
                    await asyncio.sleep(0.01)
        assert await accepting is None
        assert dict((await rows(database, STORED))[0]) == NOTHING
        assert await accept(store, claim_of(own)) is not None


async def test_a_turn_that_has_waited_for_a_conversation_takes_it_though_its_row_has_changed(database: str) -> None:
    """What it saw of the queue is old, so it looks again, behind the lock."""
    async with replica(database) as (store, own):
        before = await taken(store, claim_of(own), create=True)
        async with store.transaction() as connection:
            await left_idle(connection)
            taking = asyncio.create_task(taken(store, claim_of(own), create=True))
            async with asyncio.timeout(30):
                while not await rows(database, WAITING):  # noqa: ASYNC110 - the state is another process's
                    await asyncio.sleep(0.01)
        assert await taking > before


async def test_a_process_that_was_marked_dead_accepts_nothing(database: str) -> None:
    async with replica(database) as (store, own):
        await execute(database, "UPDATE replicas SET dead = true")
        assert await accept(store, claim_of(own)) is None
        with pytest.raises(ReplicaGoneError):
            await taken(store, claim_of(own), create=True)
        assert await rows(database, "SELECT 1 FROM conversations") == []
        await execute(database, "UPDATE replicas SET dead = false")
        await taken(store, claim_of(own), create=True)
        await execute(database, "UPDATE conversations SET running_operation = NULL", "UPDATE replicas SET dead = true")
        assert await accept(store, claim_of(own)) is None
        for create in (True, False):
            with pytest.raises(ReplicaGoneError):
                await taken(store, claim_of(own), create=create)
        assert dict((await rows(database, STORED))[0]) == NOTHING


@pytest.mark.parametrize("create", [True, False])
async def test_who_wants_a_conversation_that_is_in_use_or_anothers_is_told_so(
    database: str,
    create: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    async with replica(database) as (store, own):
        running = claim_of(own)
        fence = await taken(store, running, create=True)
        with pytest.raises(ConversationBusyError) as told:
            await taken(store, claim_of(own), create=create)
        assert told.value.details["stream_id"] == running.stream_id
        await execute(database, "UPDATE conversations SET running_operation = NULL")
        with pytest.raises(NotFoundError):
            await taken(store, replace(claim_of(own), caller=Caller("bob")), create=create)
        assert await taken(store, claim_of(own), create=create) > fence


async def waiting(connection: Connection, process: UUID) -> tuple[UUID, int]:
    """Let a turn wait in a process and give it with its place."""
    entry = InboundRecord(
        KEY, fresh_uuid(), OperationKind.TURN, "waiting", f"st_{process.hex}", "turn", 0, 1,
        touched=False, pause_id=None, payload={},
    )  # fmt: skip
    place = await inbound.enqueue(connection, entry, replica=process, at_head=False, longest=9)
    assert place is not None
    return entry.operation, place


async def test_what_waited_in_a_process_of_which_nothing_is_known_any_more_is_removed(database: str) -> None:
    async with replica(database) as (store, own):
        await taken(store, claim_of(own), create=True)
        async with store.transaction() as connection:
            dead = fresh_uuid()
            await replicas.register(connection, dead, timedelta(hours=-2))
            await replicas.leave(connection, dead)
            waits = [await waiting(connection, process) for process in (own, dead)]
            for left in (waits, waits[:1]):
                await inbound.forget_waiters(connection)
                found = await connection.driver.fetch("SELECT operation, place FROM inbound_messages ORDER BY place")
                assert [tuple(row) for row in found] == left
                await replicas.forget_dead(connection)


@pytest.mark.parametrize(("lease", "dead", "goes_first"), [(60, False, True), (60, True, False), (-60, False, False)])
async def test_a_waiter_goes_first_as_long_as_its_process_lives(
    database: str,
    lease: int,
    dead: bool,  # noqa: FBT001 - a parameter of the test
    goes_first: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    async with replica(database) as (store, own):
        await taken(store, claim_of(own), create=True)
        other = fresh_uuid()
        async with store.transaction() as connection:
            await left_idle(connection)
            await replicas.register(connection, other, timedelta(seconds=lease))
            if dead:
                await replicas.leave(connection, other)
            waits = [await waiting(connection, process) for process in (other, own)]
            operation, place = waits[-1]
            assert await inbound.is_next(connection, KEY, operation, place) is not goes_first
        claim = replace(claim_of(own), operation=operation, place=place)
        if goes_first:
            with pytest.raises(ConversationBusyError):
                await taken(store, claim, create=True)
        else:
            assert await taken(store, claim, create=True)


async def test_a_cancel_hits_what_runs_on_the_stream_that_it_names(database: str) -> None:
    async with replica(database) as (store, own):
        running = claim_of(own)
        await taken(store, running, create=True)
        async with store.transaction() as connection:
            assert await claims.ask_to_cancel(connection, KEY, stream_id="another") is None
            assert await claims.to_cancel(connection, own) == []
            found = await claims.ask_to_cancel(connection, KEY, stream_id=running.stream_id)
            assert await claims.to_cancel(connection, fresh_uuid()) == []
            assert await claims.to_cancel(connection, own) == [found]


async def test_a_change_of_an_idle_conversation_takes_nothing_from_an_operation_that_runs(database: str) -> None:
    async with replica(database) as (store, own):
        fence = await taken(store, claim_of(own), create=True)
        async with store.transaction() as connection:
            assert await claims.take_idle(connection, KEY) is None
        assert [row["fence"] for row in await rows(database, "SELECT fence FROM conversations")] == [fence]
        async with store.transaction() as connection:
            await left_idle(connection)
            raised = await claims.take_idle(connection, KEY)
        assert raised is not None
        assert raised > fence
