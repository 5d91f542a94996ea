"""Edges of limits and summaries. Most have their test beside the rule that they are an edge of; these are the rest.

Some edges that such systems have can't come up here, and so have no test. Messages have ids and positions, so none
vanishes for want of an id, and no clock decides what is covered or in which order messages stand. There is no live
copy of a conversation in a process, so none is evicted, goes stale, or is saved over another. Messages are only ever
added, and one operation at a time adds them.
"""

import asyncio

import pytest

from app.domain.messages import Message
from app.providers.base import ModelRequest
from app.providers.scripted import Hold, Piece
from tests.conversation.talking import (
    ROLLING,
    add,
    asks_for_summary,
    completed,
    has_said,
    last_told,
    passes,
    record_of,
    routing,
    said,
    talking,
    writes,
)
from tests.databases import rows

PATIENCE = 30.0


async def test_the_first_turn_of_a_conversation_has_nothing_to_summarize(shared_database: str) -> None:
    async with talking(shared_database, rolling_summary_compaction=ROLLING) as stage:
        chunks = await stage.play("Hello")
        assert completed(chunks)
        assert routing(chunks)["rolling_summary"]["reason"] == "below_threshold"
        assert last_told(stage) == ["Hello"]


async def test_messages_of_one_instant_are_neither_lost_nor_told_twice(shared_database: str) -> None:
    async with talking(shared_database, rolling_summary_compaction=ROLLING) as stage:
        await has_said(stage, *said(20))
        await rows(shared_database, "UPDATE messages SET created_at = '2020-01-01'")
        await stage.play("m21")
        assert last_told(stage) == ["m1", "m2", "[m3..m14]", *[f"m{n}" for n in range(15, 22)]]


async def test_a_profiles_own_prompt_replaces_the_one_for_all_modes(shared_database: str) -> None:
    given = {
        **ROLLING,
        "system_prompt": "All.",
        "profiles": {"c": {"system_prompt": "Code."}},
        "default_profile_id": "c",
    }
    async with talking(shared_database, rolling_summary_compaction=given) as stage:
        await has_said(stage, *said(20))
        await stage.play("m21")
        assert stage.provider.requests[0].messages[0].content == "Code."


async def test_the_input_is_told_once_and_the_same_words_said_before_stay(shared_database: str) -> None:
    async with talking(shared_database) as stage:
        await has_said(stage, Message("user", "Hello"))
        await stage.play("Hello")
        assert last_told(stage) == ["Hello", "Hello"]


async def test_with_persistence_off_what_was_stored_before_is_not_told(shared_database: str) -> None:
    async with talking(shared_database) as stage:
        await has_said(stage, Message("user", "Hello"))
    async with talking(shared_database, enable_conversational_persistence=False) as stage:
        await stage.play("Hello")
        assert last_told(stage) == ["Hello"]


async def test_messages_that_are_added_while_a_summary_is_made_are_all_told(shared_database: str) -> None:
    hold = Hold()

    def slow(request: ModelRequest) -> list[Piece] | str:
        return [hold, '{"summary_markdown": "S"}'] if asks_for_summary(request) else "Ok."

    async with talking(shared_database, slow, rolling_summary_compaction=ROLLING) as stage:
        await has_said(stage, *said(20))
        turn = asyncio.create_task(stage.play("m21"))
        async with asyncio.timeout(PATIENCE):
            await hold.reached.wait()
            await add(shared_database, Message("assistant", "Meanwhile."))
            hold.release()
            await turn
        assert last_told(stage) == ["m1", "m2", "S", *[f"m{n}" for n in range(15, 22)], "Meanwhile."]


@pytest.mark.parametrize("answer", ["", "   "], ids=["empty", "blank"])
async def test_an_empty_summary_replaces_no_message_at_the_limit(shared_database: str, answer: str) -> None:
    given = {"enable_automatic_summarization": True, "messages_to_keep_verbatim_tail": 2}
    async with talking(shared_database, writes(answer), max_history_length_messages=6, **given) as stage:
        await has_said(stage, *said(10))
        chunks = await stage.play("m11")
        assert routing(chunks)["rolling_summary"]["reason"] == "empty_summary"
        assert last_told(stage) == ["m1", "m2", "m8", "m9", "m10", "m11"]
        record = await record_of(shared_database)
        assert record is not None
        assert (record.version, record.covers, record.text) == (0, (), "")


async def test_messages_past_the_limit_do_not_come_back_after_a_restart(shared_database: str) -> None:
    async with talking(shared_database, max_history_length_messages=4) as stage:
        await has_said(stage, *said(10))
        await stage.play("m11")
        assert last_told(stage) == ["m1", "m2", "m10", "m11"]
    async with talking(shared_database, max_history_length_messages=4) as again:
        await again.play("m13")
        assert last_told(again) == ["m1", "m2", "Ok.", "m13"]


async def test_no_limit_and_no_summary_ever_changes_a_stored_message(shared_database: str) -> None:
    async with talking(shared_database, rolling_summary_compaction=ROLLING, max_history_length_messages=4) as stage:
        await has_said(stage, *said(30))
        before = await rows(shared_database, "SELECT m::text FROM messages m ORDER BY position")
        await stage.play("m31")
        await stage.play("m33")
        assert passes(stage) == 2
        after = await rows(shared_database, "SELECT m::text FROM messages m ORDER BY position")
        assert after[: len(before)] == before


async def test_a_system_message_of_the_conversation_is_told_word_for_word_beside_the_summary(
    shared_database: str,
) -> None:
    async with talking(shared_database, rolling_summary_compaction=ROLLING) as stage:
        await has_said(stage, *said(4), Message("system", "Answer in rhymes."), *said(16, 5))
        await stage.play("m21")
        assert last_told(stage)[:5] == ["m1", "m2", "[m3..m14]", "Answer in rhymes.", "m15"]


async def test_a_later_system_message_does_not_keep_the_messages_behind_it_out_of_the_next_pass(
    shared_database: str,
) -> None:
    async with talking(shared_database, rolling_summary_compaction=ROLLING) as stage:
        await has_said(stage, *said(4), Message("system", "Answer in rhymes."), *said(26, 5))
        await stage.play("m31")
        await stage.play("m33")
        record = await record_of(shared_database)
        assert record is not None
        assert record.covers == ((3, 4), (6, 27))
