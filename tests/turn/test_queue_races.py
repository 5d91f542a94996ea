"""A claim that has waited for the conversation's row: what it had read of the queue before must not count any more.

Each test holds the row in a transaction of its own, which plays another process; the party of the test stands in front
of it, and then the transaction commits.
"""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from app.domain.errors import ConversationBusyError, DatabaseError
from app.domain.ids import fresh, fresh_uuid, row_key
from app.domain.jsontext import loads
from app.domain.messages import Message
from app.domain.turn import OnBusy, OperationKind
from app.domain.views import Started
from app.providers.scripted import Hold
from app.store import acceptance, claims, inbound
from app.store.claims import Claim, ReplicaGoneError
from app.store.database import Connection
from app.store.inbound import InboundRecord
from app.store.messages import NewMessage
from app.turn.orchestrator import queue
from app.turn.orchestrator.ending import end_seized
from app.turn.orchestrator.operation import Identity, Operation
from app.turn.orchestrator.queue import GAVE_WAY, LEAVES_OUT
from tests.databases import rows
from tests.stage import ADA, CHAT, Stage, turn_input
from tests.turn.pausing import scripted, speaking, status, told, until, waiting

CONVERSATION = row_key("", CHAT)
LOCKED = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def entry(operation: UUID, **payload: Any) -> InboundRecord:
    return InboundRecord(
        conversation=CONVERSATION,
        operation=operation,
        kind=OperationKind.TURN,
        status="waiting",
        stream_id=f"st_{operation.hex}",
        turn_id=f"turn_{operation.hex}",
        fence=0,
        attempt=1,
        touched=False,
        pause_id=None,
        payload=payload,
    )


@asynccontextmanager
async def changing_the_queue(stage: Stage) -> AsyncIterator[Connection]:
    """Another process's transaction; it commits when the block is left, in which a party must have run into it."""
    async with stage.runtime._services.database.transaction() as connection:
        # The party may need long to get here on a busy machine, and this transaction waits for it.
        await connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        await claims.lock_queue(connection, CONVERSATION)
        yield connection

        async def is_locked() -> bool:
            return bool(await rows(stage.database, LOCKED))

        await until(is_locked)


async def enqueue(stage: Stage, connection: Connection, operation: UUID, **payload: Any) -> int:
    """Let an interrupting turn of this process wait."""
    replica = stage.runtime._services.lease.id
    place = await inbound.enqueue(connection, entry(operation, **payload), replica=replica, at_head=True, longest=10)
    assert place is not None
    return place


async def end(stage: Stage, connection: Connection) -> None:
    """End what runs, as an interrupting turn does with an operation that does not give way."""
    running = await claims.ask_to_cancel(connection, CONVERSATION)
    assert running is not None
    seized = await claims.seize(connection, CONVERSATION, running.operation, only_dead=False)
    found = await inbound.find(connection, CONVERSATION, running.operation)
    assert seized is not None
    assert found is not None
    await end_seized(connection, stage.runtime._services, seized, found, GAVE_WAY)


async def first_runs(stage: Stage) -> Started:
    return (await speaking(stage, text="First."))[0]


async def test_a_rollback_that_looked_before_another_one_waited_does_not_go_first(stage: Stage) -> None:
    first = await first_runs(stage)
    stage.provider.add("Second.")
    async with changing_the_queue(stage) as connection:
        late = asyncio.create_task(stage.play("The right one.", on_busy="rollback"))
        await enqueue(stage, connection, fresh_uuid(), **{LEAVES_OUT: [first.turn_id]})
        await end(stage, connection)
    assert (await asyncio.wait_for(late, 20))[-1]["final_response_text"] == "Second."
    assert [message["content"] for message in told(stage.provider.requests[-1])] == ["The right one."]


async def test_a_turn_that_does_not_wait_is_refused_when_another_one_has_come_meanwhile(stage: Stage) -> None:
    await first_runs(stage)
    async with changing_the_queue(stage) as connection:
        late = asyncio.create_task(stage.runtime.start_turn(turn_input("Late.")))
        await enqueue(stage, connection, fresh_uuid())
        await end(stage, connection)
    with pytest.raises(ConversationBusyError):
        await late
    assert "Late." not in [text for _, text in await stage.said()]


async def test_a_turn_that_finds_the_conversation_freed_meanwhile_takes_it(stage: Stage) -> None:
    await first_runs(stage)
    stage.provider.add("Second.")
    async with changing_the_queue(stage) as connection:
        late = asyncio.create_task(stage.play("Late."))
        await end(stage, connection)
    assert (await late)[-1]["final_response_text"] == "Second."


async def test_an_interrupter_that_is_replaced_while_it_takes_the_conversation_does_not_get_it(stage: Stage) -> None:
    stage.provider.add("Hello.")
    await stage.play("Hi.")
    services = stage.runtime._services
    older = fresh_uuid()
    async with services.database.transaction() as connection:
        place = await enqueue(stage, connection, older)

    async def take() -> int:
        claim = Claim(older, services.lease.id, CONVERSATION, ADA, CHAT, CHAT, "demo", f"st_{older.hex}", place)
        async with services.database.transaction() as connection:
            return await claims.take(connection, claim, create=True)

    async with changing_the_queue(stage) as connection:
        taking = asyncio.create_task(take())
        await enqueue(stage, connection, fresh_uuid())
    with pytest.raises(ConversationBusyError):
        await taking


async def test_a_rollback_takes_over_what_a_lost_one_was_to_roll_back(shared_database: str) -> None:
    """The one before it has lost its process, so a turn went past it; both that and the first one are rolled back."""
    async with scripted(shared_database) as stage:
        stage.runtime._lifecycle._sweeping.cancel()  # it would remove what was lost long ago
        first = await first_runs(stage)
        lost = fresh_uuid()
        async with stage.runtime._services.database.transaction() as connection:
            await claims.lock_queue(connection, CONVERSATION)
            await enqueue(stage, connection, lost, **{LEAVES_OUT: [first.turn_id]})
            await end(stage, connection)
        await rows(shared_database, "UPDATE inbound_messages SET replica = $1 WHERE status = 'waiting'", fresh_uuid())
        hold = Hold()
        stage.provider.add(["Passing", hold], "Third.")
        passing = asyncio.create_task(stage.play("Second."))
        await asyncio.wait_for(hold.reached.wait(), 20)
        third = await asyncio.wait_for(stage.play("The right one.", on_busy="rollback"), 20)
        with suppress(asyncio.CancelledError):
            await passing

        assert third[-1]["final_response_text"] == "Third."
        assert [message["content"] for message in told(stage.provider.requests[-1])] == ["The right one."]
        assert [text for role, text in await stage.said() if role == "user"] == ["First.", "Second.", "The right one."]
        assert await waiting(stage) == 0


async def test_who_begins_to_wait_does_so_behind_whoever_changes_the_queue(stage: Stage) -> None:
    await first_runs(stage)
    operation = Operation(stage.runtime._services, OperationKind.TURN, Identity(ADA, CHAT, CHAT, "st", "turn"))
    async with changing_the_queue(stage):
        beginning = asyncio.create_task(queue._enqueue(operation, "wait", entry(operation.id)))
    await asyncio.wait_for(beginning, 20)
    assert await waiting(stage) == 1


@pytest.mark.parametrize("on_busy", ["interrupt", "rollback"])
async def test_what_has_come_between_gives_way_as_well(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, on_busy: OnBusy
) -> None:
    """The operation that was asked to has paused, say, and results came for that pause: those wait for nobody."""
    monkeypatch.setattr(queue, "PATIENCE_SECONDS", 3600)
    first = await first_runs(stage)
    stage.runtime._lifecycle._sweeping.cancel()
    stage.runtime._services.cancels.forget(first.fence)
    await stage.runtime._services.log.settle()
    between = replace(entry(fresh_uuid(), persona_id="demo"), status="running")
    said = [NewMessage(fresh("msg"), Message("user", "Between."), between.turn_id)]
    own = stage.runtime._services.lease.id
    claim = Claim(between.operation, own, CONVERSATION, ADA, CHAT, CHAT, "demo", between.stream_id)
    stage.provider.add("Mine.")
    late = asyncio.create_task(stage.play("Late.", on_busy=on_busy))

    async def waits() -> bool:
        return await waiting(stage) == 1

    await until(waits)
    async with stage.runtime._services.database.transaction() as connection:
        await end(stage, connection)
        fence = await claims.take(connection, claim, create=False)
        between = replace(between, fence=fence)
        await acceptance.accept(connection, between, persona_id="demo", ephemeral=False, new=said, batches=())
    monkeypatch.setattr(queue, "PATIENCE_SECONDS", 0.05)
    assert (await asyncio.wait_for(late, 20))[-1]["final_response_text"] == "Mine."
    (ended,) = await rows(stage.database, "SELECT status FROM streams WHERE stream_id = $1", between.stream_id)
    assert ended["status"] == "cancelled"
    before = [] if on_busy == "rollback" else ["First.", "So far", "Between."]
    heard = [message["content"] for message in told(stage.provider.requests[-1])]
    assert heard == [*before, "Late."]


async def test_a_rollback_that_waits_has_stored_what_it_is_to_roll_back(stage: Stage) -> None:
    first = await first_runs(stage)
    stage.runtime._services.cancels.forget(first.fence)  # so that it does not give way
    late = asyncio.create_task(stage.runtime.start_turn(turn_input("The right one.", on_busy="rollback")))

    async def waits() -> bool:
        return await waiting(stage) == 1

    await until(waits)
    (row,) = await rows(stage.database, "SELECT payload FROM inbound_messages WHERE status = 'waiting'")
    assert loads(row["payload"])[LEAVES_OUT] == [first.turn_id]
    late.cancel()
    with suppress(asyncio.CancelledError):
        await late


async def test_a_waiter_waits_on_while_the_database_is_away(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await first_runs(stage)
    stage.provider.add("Second.")
    met: list[None] = []

    async def away(*_: object) -> None:
        met.append(None)
        message = "away"
        raise DatabaseError(message)

    async def was_met_twice() -> bool:
        return len(met) > 1

    with monkeypatch.context() as patch:
        patch.setattr(inbound, "is_next", away)
        second = asyncio.create_task(stage.play("The right one.", on_busy="rollback"))
        await until(was_met_twice)
        assert await waiting(stage) == 1
    assert (await asyncio.wait_for(second, 20))[-1]["final_response_text"] == "Second."
    assert await status(stage, first.stream_id) == "cancelled"
    assert [message["content"] for message in told(stage.provider.requests[-1])] == ["The right one."]


async def test_a_refusal_that_nobody_waits_for_any_more_is_no_unseen_error(stage: Stage) -> None:
    unseen: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(str(context["message"])))
    operation = Operation(stage.runtime._services, OperationKind.TURN, Identity(ADA, CHAT, CHAT, "st", "turn"))

    operation.refuse(ReplicaGoneError())
    del operation
    gc.collect()

    assert unseen == []
