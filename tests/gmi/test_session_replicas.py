"""Two processes that serve one session: no entry is lost, and the row's versions tell who was too late."""

import asyncio
from dataclasses import replace

from app.domain.clock import SystemClock
from app.domain.ids import row_key
from app.domain.session import SessionKey, TraceEntry
from app.store import sessions
from app.store.database import Connection, Database
from app.store.sessions import TraceOrigin
from tests.requirements import requirement
from tests.stage import ADA, Stage, running_stage

KEY = SessionKey.of(ADA, "s")
CONVERSATION = row_key("", "chat-1")
ORIGIN = TraceOrigin(CONVERSATION, "chat-1", "st_1", "turn_1", "demo")


def noted(*messages: str) -> list[TraceEntry]:
    return [TraceEntry(SystemClock().now(), "warning", message) for message in messages]


@requirement("R310")
async def test_two_replicas_that_serve_one_session_lose_no_entry(shared_database: str) -> None:
    async with running_stage(shared_database) as one, running_stage(shared_database) as two:
        one.provider.add(*["Hello."] * 20)
        two.provider.add(*["Hello."] * 20)
        async with asyncio.timeout(30):
            for round_ in range(4):
                await asyncio.gather(
                    *(
                        stage.play("Hi.", session="s", conversation=f"{name}-{round_}-{number}")
                        for name, stage in (("one", one), ("two", two))
                        for number in range(5)
                    )
                )
        page = await two.runtime.session_trace(ADA, "s", cursor=None, limit=200, descending=False)
        assert [entry.position for entry in page.items] == list(range(1, 161))
        for turn in {entry.turn_id for entry in page.items}:
            mine = [entry.type for entry in page.items if entry.turn_id == turn]
            assert mine == ["interaction_start", "llm_call_start", "llm_call_complete", "interaction_end"]


async def test_an_append_waits_for_another_one_and_comes_behind_it(shared_database: str) -> None:
    database = Database(shared_database)
    written, leave = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with database.transaction() as connection:
            await sessions.keep(connection, KEY, ORIGIN, noted("a", "b"), most=3)
            written.set()
            await leave.wait()

    async def second() -> None:
        async with database.transaction() as connection:
            await sessions.keep(connection, KEY, ORIGIN, noted("c", "d"), most=3)

    async with asyncio.timeout(30):
        one = asyncio.create_task(first())
        await written.wait()
        two = asyncio.create_task(second())
        await until_blocked(database)
        leave.set()
        await asyncio.gather(one, two)
        async with database.transaction() as connection:
            found = await sessions.trace_page(connection, KEY, after=None, limit=9, descending=False)
    await database.close()
    assert [(record.position, record.entry.message) for record in found] == [(2, "b"), (3, "c"), (4, "d")]


async def test_an_erasure_leaves_a_session_that_another_process_is_just_writing_to(stage: Stage) -> None:
    for name in ("chat-1", "chat-2"):
        await stage.runtime.create_conversation(
            ADA, conversation_id=name, session_id="s", persona_id=None, title=None, metadata={}, messages=()
        )
    stage.provider.add("Hello.")
    await stage.play("Hi.", session="t", user_context={"name": "Ada"})
    other, key = replace(ORIGIN, conversation=row_key("", "chat-2")), SessionKey.of(ADA, "t")
    database = Database(stage.database)
    async with asyncio.timeout(30):
        async with database.transaction() as connection:
            await sessions.keep(connection, key, other, noted("a"), most=9)
            erasing = asyncio.create_task(stage.runtime.delete_conversation(ADA, "chat-1"))
            await until_blocked(database)
        await erasing
        async with database.transaction() as connection:
            kept = await sessions.find(connection, key)
            found = await sessions.trace_page(connection, key, after=None, limit=9, descending=False)
    await database.close()
    assert kept.user_context == {"name": "Ada"}
    assert [(record.position, record.entry.message) for record in found] == [(5, "a")]


async def test_work_behind_an_end_changes_only_the_version_that_it_has_read(shared_database: str) -> None:
    database = Database(shared_database)

    async def write(mood: str, seen: int) -> bool:
        async with database.transaction() as connection:
            return await sessions.write(connection, KEY, {"mood": mood}, seen=seen)

    async with database.transaction() as connection:
        assert not await sessions.write(connection, KEY, {"mood": "lost"}, seen=0)
        await sessions.keep(connection, KEY, ORIGIN, noted("a"), most=3, changes={"mood": "calm"})
        read = await sessions.find(connection, KEY)
    assert [await write("curious", read.version), await write("late", read.version)] == [True, False]
    async with database.transaction() as connection:
        await sessions.keep(connection, KEY, ORIGIN, [], most=3, changes={"mood": "last"})
        state = await sessions.find(connection, KEY)
    await database.close()
    assert (state.mood, state.version) == ("last", read.version + 2)


async def test_user_contexts_that_come_at_once_are_all_merged(shared_database: str) -> None:
    database = Database(shared_database)

    async def merge(number: int) -> None:
        async with database.transaction() as connection:
            await sessions.merge_user_context(connection, KEY, {f"k{number}": number, "preferences": {f"p{number}": 1}})

    async with asyncio.timeout(30):
        await asyncio.gather(*map(merge, range(8)))
        async with database.transaction() as connection:
            context = (await sessions.find(connection, KEY)).user_context
    await database.close()
    assert (len(context), len(context["preferences"])) == (9, 8)


async def until_blocked(database: Database) -> None:
    """Wait until a statement waits for a lock."""

    async def waits(connection: Connection) -> bool:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return bool(await connection.driver.fetchval(query))

    async with asyncio.timeout(30):
        while not await database.read(waits):  # noqa: ASYNC110 - a state of the database
            await asyncio.sleep(0.01)
