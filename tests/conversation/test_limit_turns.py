"""The limit in whole turns: what is told, what stays readable, and summaries that are made at the limit."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.conversation.valid import OPENING
from app.domain.messages import Message, ToolCall
from app.domain.turn import TurnOptions
from app.providers.base import ModelRequest
from app.providers.scripted import Piece
from app.settings import Settings
from app.turn.facade.host import Chunk
from tests.conversation.histories import round_of
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
)
from tests.databases import rows
from tests.requirements import requirement
from tests.stage import ADA, CHAT, WEATHER, Stage, result

AT_LIMIT: dict[str, Any] = {
    "enable_automatic_summarization": True,
    "summarization_chunk_size": 4,
    "messages_to_keep_verbatim_tail": 3,
}


def fails(request: ModelRequest) -> list[Piece] | str:
    if asks_for_summary(request):
        message = "The summarizer is broken."
        raise ValueError(message)
    return "Ok."


async def all_that_was_said(stage: Stage) -> list[str]:
    return [str(message.content) for message in await stage.messages()]


@requirement("R320", "R323", "R324", "R325")
async def test_past_the_limit_a_turn_is_told_the_head_and_the_newest_and_the_rest_stays_readable(
    shared_database: str,
) -> None:
    async with talking(shared_database, max_history_length_messages=6) as stage:
        await has_said(stage, *said(20))
        await stage.play("m21")
        assert last_told(stage) == ["m1", "m2", "m18", "m19", "m20", "m21"]
        assert await all_that_was_said(stage) == [*[f"m{n}" for n in range(1, 22)], "Ok."]


@requirement("R321")
async def test_the_limit_is_a_hundred_messages_unless_set_otherwise(shared_database: str) -> None:
    assert Settings(_env_file=None).max_history_length_messages == 100
    async with talking(shared_database) as stage:
        await has_said(stage, *said(150))
        await stage.play("m151")
        assert last_told(stage) == ["m1", "m2", *[f"m{n}" for n in range(54, 152)]]


@requirement("R322")
async def test_with_a_limit_of_zero_every_message_is_told(shared_database: str) -> None:
    async with talking(shared_database, max_history_length_messages=0) as stage:
        await has_said(stage, *said(150))
        await stage.play("m151")
        assert last_told(stage) == [f"m{n}" for n in range(1, 152)]


@requirement("R333")
async def test_with_the_rolling_summary_off_the_history_is_what_the_conversation_keeps(shared_database: str) -> None:
    async with talking(shared_database) as stage:
        await has_said(stage, *said(3), *round_of("a", 2), *said(1, 7))
        await stage.play("m7")
        told = stage.provider.requests[-1].messages[1:]
        kept = [message.message_id for message in await stage.messages()]
        assert len(told) == len(kept) - 1 == 8
        assert last_told(stage)[-2:] == ["m7", "m7"]
        assert routing_reason(await stage.play("m9")) == "disabled"


def routing_reason(chunks: Sequence[Chunk]) -> object:
    return routing(chunks)["rolling_summary"]["reason"]


@requirement("R334", "R335")
async def test_errors_and_thoughts_stay_in_the_conversation_and_are_never_told(shared_database: str) -> None:
    async with talking(shared_database) as stage:
        await has_said(stage, *said(2))
        await add(shared_database, Message("error", "It broke."), Message("thought", "Hm."))
        await stage.play("m3")
        assert last_told(stage) == ["m1", "m2", "m3"]
        assert await all_that_was_said(stage) == ["m1", "m2", "It broke.", "Hm.", "m3", "Ok."]


async def test_a_turn_that_was_rolled_back_stays_readable_and_is_not_told(shared_database: str) -> None:
    async with talking(shared_database, max_history_length_messages=5) as stage:
        await has_said(stage, *said(10))
        await rows(shared_database, "UPDATE messages SET not_sent = true WHERE content #>> '{}' IN ('m1', 'm9')")
        await stage.play("m11")
        assert last_told(stage) == [OPENING.content, "m2", "m3", "m8", "m10", "m11"]
        assert "m9" in await all_that_was_said(stage)


@requirement("R336", "R337")
async def test_a_round_that_the_kept_messages_reach_into_is_told_whole_even_over_the_limit(
    shared_database: str,
) -> None:
    async with talking(shared_database, max_history_length_messages=4) as stage:
        await has_said(stage, *said(8), *round_of("a", 40))
        await stage.play("Go on.")
        told = stage.provider.requests[-1].messages[1:]
        assert [message.role for message in told] == ["user", "assistant", "assistant", *["tool"] * 40, "user"]


@requirement("R326", "R329", "R338", "R343")
async def test_past_the_limit_the_oldest_behind_the_head_are_summarized_instead_of_dropped(
    shared_database: str,
) -> None:
    async with talking(shared_database, max_history_length_messages=12, **AT_LIMIT) as stage:
        await has_said(stage, *said(12))
        chunks = await stage.play("m13")
        block = routing(chunks)["rolling_summary"]
        assert (block["did_compact"], block["at_limit"], block["summarized_messages"]) == (True, True, 4)
        assert last_told(stage) == ["m1", "m2", "[m3..m6]", *[f"m{n}" for n in range(7, 14)]]
        record = await record_of(shared_database)
        assert record is not None
        assert (record.covers, record.head, record.at_limit) == (((3, 6),), 2, True)
        assert len(await stage.messages()) == 14


@requirement("R326")
async def test_within_the_limit_nothing_is_summarized_and_far_past_it_each_turn_takes_more(
    shared_database: str,
) -> None:
    async with talking(shared_database, max_history_length_messages=12, **AT_LIMIT) as stage:
        await has_said(stage, *said(10))
        assert routing_reason(await stage.play("m11")) == "within_limit"
        await add(shared_database, *said(60, 13))
        await stage.play("m73")
        assert passes(stage) == 1
        told = last_told(stage)
        assert told[:3] == ["m1", "m2", "[m3..m8]"]
        assert len(told) == 12
        await stage.play("m75")
        assert passes(stage) == 2


@requirement("R343")
async def test_a_summary_at_the_limit_takes_none_of_the_head_also_where_a_profile_had_a_smaller_one(
    shared_database: str,
) -> None:
    rolling = {**ROLLING, "head_messages_to_keep": 1, "max_messages_to_summarize_per_pass": 4}
    async with talking(shared_database, rolling_summary_compaction=rolling) as stage:
        await has_said(stage, *said(14))
        await stage.play("m15")
    given: dict[str, Any] = {**AT_LIMIT, "messages_to_keep_verbatim_head": 7}
    async with talking(shared_database, max_history_length_messages=12, **given) as stage:
        await stage.play("m17")
        record = await record_of(shared_database)
        assert record is not None
        assert record.covers == ((2, 5), (8, 13))
        assert last_told(stage) == ["m1", "[m2..m5][m8..m13]", "m6", "m7", "m14", "m15", "Ok.", "m17"]


@requirement("R338", "R339")
async def test_a_summary_at_the_limit_takes_rounds_whole(shared_database: str) -> None:
    async with talking(shared_database, max_history_length_messages=10, **AT_LIMIT) as stage:
        await has_said(stage, *said(3), *round_of("a", 3), *said(5))
        await stage.play("Go on.")
        record = await record_of(shared_database)
        assert record is not None
        assert record.covers == ((3, 7),)
        assert last_told(stage) == ["m1", "m2", "[m3..found]", "m1", "m2", "m3", "m4", "m5", "Go on."]


@requirement("R327")
async def test_without_a_model_to_summarize_with_messages_drop_out(shared_database: str) -> None:
    given: dict[str, Any] = {**AT_LIMIT, "default_model": "missing:model"}
    async with talking(shared_database, max_history_length_messages=6, **given) as stage:
        await has_said(stage, *said(20))
        chunks = await stage.play("m21", options=TurnOptions(model="scripted:small"))
        assert completed(chunks)
        assert routing_reason(chunks) == "no_model"
        assert last_told(stage) == ["m1", "m2", "m18", "m19", "m20", "m21"]


@requirement("R328")
async def test_with_automatic_summarization_off_messages_drop_out(shared_database: str) -> None:
    async with talking(shared_database, max_history_length_messages=6) as stage:
        await has_said(stage, *said(20))
        await stage.play("m21")
        assert passes(stage) == 0
        assert len(last_told(stage)) == 6


async def test_a_summarizer_that_raises_drops_messages_out_and_never_the_new_one(shared_database: str) -> None:
    async with talking(shared_database, fails, max_history_length_messages=6, **AT_LIMIT) as stage:
        await has_said(stage, *said(20))
        chunks = await stage.play("m21")
        assert completed(chunks)
        assert routing_reason(chunks) == "failed"
        assert last_told(stage) == ["m1", "m2", "m18", "m19", "m20", "m21"]


@requirement("R330", "R331")
async def test_a_summary_made_at_the_limit_stays_when_messages_drop_out_later(shared_database: str) -> None:
    async with talking(shared_database, max_history_length_messages=12, **AT_LIMIT) as stage:
        await has_said(stage, *said(12))
        await stage.play("m13")
    async with talking(shared_database, max_history_length_messages=6) as stage:
        await stage.play("m15")
        assert last_told(stage) == ["m1", "m2", "[m3..m6]", "m13", "Ok.", "m15"]


@requirement("R330", "R331", "R332")
@pytest.mark.parametrize(("limit", "kept"), [(5, ["s1", "s2", "m21"]), (4, ["s2", "m21"])])
async def test_summaries_that_are_messages_themselves_stay_as_well(
    shared_database: str, limit: int, kept: list[str]
) -> None:
    async with talking(shared_database, max_history_length_messages=limit) as stage:
        await has_said(stage, *said(2))
        await add(shared_database, Message("summary", "s1"), *said(10, 3), Message("summary", "s2"), *said(8, 13))
        await stage.play("m21")
        assert last_told(stage) == ["m1", "m2", *kept]


@requirement("R58", "R59", "R60")
async def test_a_paused_turns_round_is_told_whole_in_the_next_turn(shared_database: str) -> None:
    calls = [ToolCall("w1", "get_weather", {"city": "Oslo"}), ToolCall("w2", "get_weather", {"city": "Rome"})]

    def answer(request: ModelRequest) -> list[Piece] | str:
        return list(calls) if request.tools and request.messages[-1].content == "weather" else "Ok."

    async with talking(shared_database, answer, max_history_length_messages=4) as stage:
        await has_said(stage, *said(4))
        paused = await stage.play("weather", tools=[WEATHER])
        await stage.pass_results(paused[-1]["stream_id"], result("w2", "rain"), result("w1", "sun"))
        await stage.play("And now?")
        told = stage.provider.requests[-1].messages[1:]
        assert [message.content for message in told] == ["m1", "m2", "Ok.", "And now?"]
        page = await stage.runtime.list_messages(ADA, CHAT, cursor=None, limit=50, descending=False)
        assert [m.role for m in page.items[5:9]] == ["assistant", "tool", "tool", "assistant"]
    async with talking(shared_database, max_history_length_messages=7) as stage:
        await stage.play("Once more.")
        told = stage.provider.requests[-1].messages[1:]
        assert [message.tool_call_id for message in told if message.role == "tool"] == ["w1", "w2"]
