"""Reading: few rows tell the same as all of them would, and messages come back as they went in."""

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from app.conversation.covered import Covered
from app.conversation.history import LONGEST_UNCOVERED, Summary, arranged, in_order, reach, read
from app.conversation.rounds import blocks
from app.domain.ids import fresh_uuid
from app.domain.messages import Entry, Message, ToolCall
from app.domain.policy import HistoryPolicy
from app.domain.session import SessionKey
from app.domain.views import MessageView
from app.store import messages, starts
from app.store.database import Connection, Database
from app.store.messages import EDGE, NewMessage
from tests.conversation.histories import entries_of, round_of, stored
from tests.conversation.talking import CONVERSATION, add, has_said, last_told, said, talking
from tests.databases import rows
from tests.requirements import requirement
from tests.stage import ADA, CHAT

LONG = 100_000
TIMES = 12


@st.composite
def covers(draw: st.DrawFn, entries: Sequence[Entry]) -> Covered:
    """Give what passes may have covered: whole rounds, in some spans, and never the newest message."""
    found = blocks([entry.message for entry in entries])[:-1]
    chosen = draw(st.lists(st.booleans(), min_size=len(found), max_size=len(found)))
    taken = [p for block, yes in zip(found, chosen, strict=True) if yes for p in range(block.start + 1, block.stop + 1)]
    return Covered().adding(taken, [entry.position for entry in entries if entry.position not in taken])


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), stored(least=5), st.integers(1, 12), st.integers(0, 5))
async def test_a_bounded_read_tells_what_reading_everything_would_tell(
    shared_database: str, data: st.DataObject, past: list[Message], limit: int, head: int
) -> None:
    entries = entries_of(past)
    covered = data.draw(covers(entries))
    policy = HistoryPolicy(limit=limit, head=head)
    known: list[Summary | None] = [None]
    if covered:
        known += [
            Summary("s", None, covered, 0, head, at_limit=True),
            Summary("s", None, covered, 0, head, at_limit=False),
            Summary("s", None, covered, None, head, at_limit=True),
        ]
    store = Database(shared_database, pool_size=2)
    key = fresh_uuid()
    async with store.transaction() as connection:
        await _make(connection, key, past)
        for summary in known:
            found = await read(connection, key, summary, policy)
            assert arranged(found, summary, policy) == arranged(entries, summary, policy)
    await store.close()


@pytest.mark.parametrize("calls", [1, EDGE + 3])
async def test_a_summary_right_behind_a_head_that_a_round_makes_longer_is_read(
    shared_database: str, calls: int
) -> None:
    past = [Message("user", "m1"), *round_of("c", calls), Message("summary", "s1"), *said(20), Message("summary", "s2")]
    assert "s1" in await _told(shared_database, past, HistoryPolicy(limit=5, head=2))


async def test_a_summary_with_which_the_newest_messages_begin_does_not_stand_behind_the_head(
    shared_database: str,
) -> None:
    """Between a head that a round makes longer and those, there are messages that are not read."""
    policy = HistoryPolicy(limit=12, head=3)
    newest = [Message("summary", "s1"), *said(11), Message("summary", "s2"), Message("user", "now")]
    assert len(newest) == reach(policy)[1]
    past = [*said(2), *round_of("c", 1), *said(4), *newest]
    assert "s1" not in await _told(shared_database, past, policy)


async def _told(shared_database: str, past: Sequence[Message], policy: HistoryPolicy) -> list[object]:
    """Give the texts that are told, as both ways to read the messages tell them, and as all of them do."""
    store, key = Database(shared_database, pool_size=2), fresh_uuid()
    async with store.transaction() as connection:
        await _make(connection, key, past)
        found = await read(connection, key, None, policy)
        first, last = reach(policy)
        started = await starts.read(connection, key, SessionKey.of(ADA, CHAT), oldest=first, newest=last)
    await store.close()
    told = arranged(entries_of(past), None, policy)
    assert arranged(found, None, policy) == told
    assert arranged(in_order(started.edges or ()), None, policy) == told
    return [message.content for message in told]


async def _make(connection: Connection, key: object, past: Sequence[Message]) -> None:
    await connection.execute(
        text(
            "INSERT INTO conversations (id, organization_id, conversation_id, user_id, session_id, fence) "
            "VALUES (:id, '', :name, 'ada', 's', 1)"
        ),
        {"id": key, "name": str(key)},
    )
    await messages.append(connection, key, [NewMessage(f"x{n}", message) for n, message in enumerate(past)])  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["plain", "rolling", "at_limit"])
async def test_a_turn_on_a_hundred_thousand_messages_reads_few_rows(shared_database: str, kind: str) -> None:
    policy = HistoryPolicy()
    covered = Covered(((3, LONG - 40),))
    summary = None if kind == "plain" else Summary("s", None, covered, 2, 2, at_limit=kind == "at_limit")
    async with talking(shared_database) as stage:
        await has_said(stage, *said(2))
    await _lengthen(shared_database)
    store = Database(shared_database, pool_size=2)
    async with store.transaction() as connection:
        # A server may keep another plan for a statement once it has run some times.
        reads = [await read(connection, CONVERSATION, summary, policy) for _ in range(TIMES)]
        touched = await connection.scalar(
            text(
                "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables "
                "WHERE relname = 'messages'"
            )
        )
    await store.close()
    assert len(reads[0]) <= policy.limit + policy.head + 5
    assert touched <= TIMES * 2 * policy.limit


async def test_what_a_turn_starts_from_is_planned_for_good_however_long_conversations_are(shared_database: str) -> None:
    async with talking(shared_database) as stage:
        await has_said(stage, *said(2))
    await _lengthen(shared_database)
    store = Database(shared_database, pool_size=2)
    oldest, newest = reach(HistoryPolicy())
    async with store.transaction() as connection:
        found = [
            await starts.read(connection, CONVERSATION, SessionKey.of(ADA, CHAT), oldest=oldest, newest=newest)
            for _ in range(TIMES)
        ]
        of_a_plan, planned = await connection.driver.fetchrow(
            "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE strpos(statement, $1) > 0",
            "json_agg(told)",
        )
    await store.close()
    told = arranged(in_order(found[-1].edges or ()), None, HistoryPolicy())
    assert [message.content for message in told[:3]] == ["m1", "m2", "m99903"]
    assert (of_a_plan, planned) == (TIMES - 5, 5)


async def test_a_rolling_summary_that_is_new_in_a_very_long_conversation_tells_a_bounded_number_of_messages(
    shared_database: str,
) -> None:
    async with talking(shared_database) as stage:
        await has_said(stage, *said(2))
    await _lengthen(shared_database)
    store = Database(shared_database, pool_size=2)
    summary = Summary("s", None, Covered(((3, 50),)), 2, 2, at_limit=False)
    async with store.transaction() as connection:
        found = await read(connection, CONVERSATION, summary, HistoryPolicy())
    await store.close()
    told = arranged(found, summary, HistoryPolicy())
    assert len(told) == LONGEST_UNCOVERED
    assert [message.content for message in told[:4]] == ["m1", "m2", summary.message().content, "m99004"]


async def _lengthen(database: str) -> None:
    await rows(
        database,
        "INSERT INTO messages (conversation, position, message_id, role, content) "
        "SELECT $1, n, 'x' || n, CASE n % 2 WHEN 1 THEN 'user' ELSE 'assistant' END, to_json('m' || n) "
        "FROM generate_series(3, $2::int) n",
        CONVERSATION,
        LONG,
    )
    await rows(database, "ANALYZE messages")


@pytest.mark.parametrize("descending", [False, True])
async def test_a_conversation_reads_back_page_by_page_with_the_turn_of_each_message(
    shared_database: str, *, descending: bool
) -> None:
    async with talking(shared_database, max_history_length_messages=3) as stage:
        for n in range(4):
            await stage.play(f"turn {n}")
        seen: list[MessageView] = []
        cursor = None
        while True:
            page = await stage.runtime.list_messages(ADA, CHAT, cursor=cursor, limit=3, descending=descending)
            seen += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
        seen = seen[::-1] if descending else seen
        assert [message.content for message in seen] == [text for n in range(4) for text in (f"turn {n}", "Ok.")]
        assert [message.position for message in seen] == list(range(1, 9))
        turns = [message.turn_id for message in seen]
        assert None not in turns
        assert turns[::2] == turns[1::2]
        assert len(set(turns)) == 4


@requirement("R317")
async def test_what_is_stored_comes_back_as_it_was(shared_database: str) -> None:
    call = ToolCall("c1", "look_up", {"text": '{"a": [1, 2]}', "n": 12345678901234567890})
    past = [
        Message("user", "[1, 2]", name="ada"),
        Message("user", "null"),
        Message("user", '{"a": "\\u0416"}'),
        Message("assistant", None, tool_calls=(call,)),
        Message("tool", "true", tool_call_id="c1", name="look_up", is_error=True),
        Message("user", "\u05e9\u05dc\u05d5\u05dd \u200fabc\u200e \u202eright to left \U0001f600"),
    ]
    async with talking(shared_database) as stage:
        await has_said(stage, *past)
        await add(shared_database, Message("thought", None))
        await stage.play("m1")
        assert list(stage.provider.requests[-1].messages[1:-1]) == past
    async with talking(shared_database) as again:
        await again.play("m2")
        assert list(again.provider.requests[-1].messages[1:7]) == past
        assert last_told(again)[6:] == ["m1", "Ok.", "m2"]
