"""Erasing a conversation: all that is just being written goes too, and whoever runs or reads it learns it at once."""

import asyncio
from datetime import UTC, datetime
from functools import partial

from sqlalchemy import text

from app.domain.ids import fresh, row_key
from app.domain.memory import MemoryPlace, NewMemory
from app.domain.session import SessionKey, TraceEntry
from app.providers.scripted import Hold
from app.store import claims, sessions
from app.store.sessions import TraceOrigin
from tests.databases import rows
from tests.stage import ADA, CHAT, Stage, turn_input
from tests.turn.pausing import until

KEY = row_key("", CHAT)
LOCKED = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
LEFT = """
SELECT (SELECT count(*) FROM reasoning_traces) AS traces, (SELECT count(*) FROM session_state) AS sessions,
    (SELECT count(*) FROM memory_traces) AS memories, (SELECT count(*) FROM conversations) AS conversations
"""


async def is_locked(stage: Stage) -> bool:
    return bool(await rows(stage.database, LOCKED))


async def test_what_is_just_being_written_is_erased_too(stage: Stage) -> None:
    stage.provider.add("Hello.")
    await stage.play("Hi.")
    services = stage.runtime._services
    about = TraceOrigin(KEY, CHAT, fresh("st"), fresh("turn"), "demo")
    entry = TraceEntry(datetime.now(UTC), "warning", "Not to be left.")
    note = NewMemory(place=MemoryPlace(ADA, CHAT, "demo"), scope="user", content="Ada likes tea.")
    async with services.database.transaction() as connection:
        await connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        await claims.lock(connection, KEY)
        await sessions.keep(connection, SessionKey.of(ADA, CHAT), about, [entry], most=500)
        await services.memories._keep(connection, note, None, ())  # type: ignore[attr-defined]
        erasing = asyncio.create_task(stage.runtime.delete_conversation(ADA, CHAT))
        await until(partial(is_locked, stage))
    await asyncio.wait_for(erasing, 20)
    assert set(dict((await rows(stage.database, LEFT))[0]).values()) == {0}


async def test_whoever_runs_or_reads_in_this_process_learns_it_at_once(stage: Stage) -> None:
    hold = Hold()
    stage.provider.add(["Well, ", hold])
    stream = (await stage.runtime.start_turn(turn_input("Hi."))).stream_id
    await asyncio.wait_for(hold.reached.wait(), 20)
    ring = stage.runtime._services.rings.find(stream)
    assert ring is not None
    with stage.runtime._services.wakeups.watch(stream) as watch:
        before = watch.changes
        await stage.runtime.delete_conversation(ADA, CHAT)
        assert (ring.lost, watch.changes > before) == (True, True)
