"""T2 is one statement: it waits for who has the conversation locked, and does all or nothing by what it finds then."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from app.domain.ids import fresh, fresh_uuid, row_key, stream_id_for
from app.domain.messages import Message
from app.domain.session import SessionKey, TraceEntry
from app.domain.turn import Caller, OperationKind, StreamStatus
from app.domain.usage import ModelCall
from app.store import acceptance, claims, replicas, settling
from app.store.claims import Claim
from app.store.database import Connection, Database
from app.store.inbound import InboundRecord
from app.store.messages import NewMessage
from app.store.sessions import Kept
from app.store.settling import Ended
from app.store.streams import StreamEnd
from app.streaming.ring import Batch
from tests.databases import rows

ADA = Caller("ada")
KEY = row_key("", "chat")
WAITING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
LEFT = """
SELECT (SELECT count(*) FROM messages) AS messages, (SELECT count(*) FROM usage_ledger) AS calls,
    (SELECT count(*) FROM stream_events) AS batches, (SELECT count(*) FROM reasoning_traces) AS traced,
    (SELECT status FROM streams) AS stream, (SELECT status FROM inbound_messages) AS operation
"""


@asynccontextmanager
async def running(database: str) -> AsyncIterator[tuple[Database, Claim, Ended]]:
    """An operation that has been accepted, and its end."""
    store = Database(database)
    claim = Claim(fresh_uuid(), fresh_uuid(), KEY, ADA, "chat", "chat", "demo", stream_id_for(KEY))
    try:
        async with store.transaction() as connection:
            await replicas.register(connection, claim.replica, timedelta(minutes=5))
            fence = await claims.take(connection, claim, create=True)
            entry = InboundRecord(
                KEY, claim.operation, OperationKind.TURN, "running", claim.stream_id, "turn", fence, 1,
                touched=False, pause_id=None, payload={},
            )  # fmt: skip
            await acceptance.accept(connection, entry, persona_id="demo", ephemeral=False, new=[], batches=[])
        trace = (TraceEntry(datetime.now(UTC), "interaction_end", "Done."),)
        yield (
            store,
            claim,
            Ended(
                conversation=KEY,
                stream_id=claim.stream_id,
                turn_id="turn",
                operation=claim.operation,
                end=StreamEnd(fence, 1, StreamStatus.COMPLETED, "ended"),
                messages=[NewMessage(fresh("msg"), Message("assistant", "Hello."), "turn")],
                calls=[ModelCall("turn", 0, 0, 1, "openai", "bench", "delivered", seconds=0.1)],
                kept=Kept(SessionKey.of(ADA, "chat"), "chat", "demo", trace, 500, {}),
                batches=[Batch(KEY, claim.stream_id, fence, 1, 1, b"frame")],
            ),
        )
    finally:
        await store.close()


async def settled_behind(
    database: str, store: Database, ended: Ended, work: Callable[[Connection], Awaitable[object]]
) -> bool:
    """Write the end while another transaction has done `work` to the conversation and is not committed yet."""

    async def settle() -> bool:
        async with store.statement() as connection:
            return await settling.write(connection, ended)

    async with store.transaction() as connection:
        assert await work(connection)
        ending = asyncio.create_task(settle())
        async with asyncio.timeout(30):
            while not await rows(database, WAITING):  # noqa: ASYNC110 - the state is another process's
                await asyncio.sleep(0.01)
    return await ending


async def test_an_end_that_waited_for_who_took_its_fence_writes_nothing(database: str) -> None:
    async with running(database) as (store, claim, ended):

        async def seize(connection: Connection) -> object:
            return await claims.seize(connection, KEY, claim.operation, only_dead=False)

        assert not await settled_behind(database, store, ended, seize)
        assert dict((await rows(database, LEFT))[0]) == {
            "messages": 0, "calls": 0, "batches": 0, "traced": 0, "stream": "running", "operation": "running",
        }  # fmt: skip


async def test_an_end_that_waited_for_who_left_it_its_fence_writes_all(database: str) -> None:
    async with running(database) as (store, _, ended):
        assert await settled_behind(database, store, ended, lambda connection: claims.ask_to_cancel(connection, KEY))
        assert dict((await rows(database, LEFT))[0]) == {
            "messages": 1, "calls": 1, "batches": 1, "traced": 1, "stream": "completed", "operation": "completed",
        }  # fmt: skip
        async with store.statement() as connection:
            assert not await settling.write(connection, ended)
