"""The rolling summary in whole turns: when it is made, who shares it, what is told, and what its failures cost."""

from dataclasses import replace

import pytest

from app.domain.errors import ProviderError
from app.domain.messages import Message, ToolCall
from app.domain.turn import TurnOptions
from app.domain.usage import Usage
from app.providers.base import ModelRequest
from app.providers.scripted import Hold, Piece
from app.store import summaries
from app.store.database import Database
from tests.conversation.histories import round_of
from tests.conversation.talking import (
    CONVERSATION,
    ROLLING,
    Answer,
    add,
    asks_for_summary,
    completed,
    has_said,
    in_mode,
    last_told,
    passes,
    record_of,
    routing,
    said,
    talking,
    writes,
)
from tests.databases import rows
from tests.requirements import requirement
from tests.stage import ADA, CHAT, WEATHER, one, result

pytestmark = pytest.mark.slow

PROFILES = {
    **ROLLING,
    "profiles": {
        "wide": {"head_messages_to_keep": 5},
        "narrow": {"head_messages_to_keep": 1},
        "off": {"enabled": False},
    },
    "profiles_by_mode": {"wide": "wide", "narrow": "narrow", "off": "off"},
}


def fails(request: ModelRequest) -> list[Piece] | str:
    if asks_for_summary(request):
        return [ProviderError("Overloaded.", reason="overloaded", provider="scripted", status=529)]
    return "Ok."


@requirement("R66", "R71")
async def test_a_pass_that_is_due_is_made_in_the_turn_and_shows_in_the_stream(shared_database: str) -> None:
    async with talking(shared_database, rolling_summary_compaction=ROLLING) as stage:
        await has_said(stage, *said(20))
        chunks = await stage.play("m21")
        assert completed(chunks)
        assert last_told(stage) == ["m1", "m2", "[m3..m14]", *[f"m{n}" for n in range(15, 22)]]
        block = routing(chunks)["rolling_summary"]
        assert block["did_compact"]
        assert (block["version"], block["summarized_messages"], block["covered_messages"]) == (1, 12, 12)
        assert (block["head"], block["profile_id"], block["reason"], block["failures"]) == (2, None, None, 0)
        record = await record_of(shared_database)
        assert record is not None
        assert (record.text, record.covers, record.head, record.version) == ("[m3..m14]", ((3, 14),), 2, 1)


@requirement("R63", "R71")
async def test_passes_follow_one_another_without_a_new_head_and_all_that_was_said_stays_readable(
    shared_database: str,
) -> None:
    async with talking(shared_database, rolling_summary_compaction=ROLLING) as stage:
        await has_said(stage, *said(30))
        await stage.play("m31")
        await stage.play("m33")
        assert last_told(stage)[:4] == ["m1", "m2", "[m3..m14][m15..m26]", "m27"]
        record = await record_of(shared_database)
        assert record is not None
        assert (record.version, record.covers, record.message_count) == (2, ((3, 26),), 24)
        assert len(await stage.messages()) == 34


async def test_a_summary_in_its_cooldown_is_used_and_not_made_longer(shared_database: str) -> None:
    given = {**ROLLING, "cooldown_seconds": 3600}
    async with talking(shared_database, rolling_summary_compaction=given) as stage:
        await has_said(stage, *said(40))
        await stage.play("m41")
        chunks = await stage.play("m43")
        assert routing(chunks)["rolling_summary"]["reason"] == "cooldown"
        assert last_told(stage)[:4] == ["m1", "m2", "[m3..m14]", "m15"]
        assert passes(stage) == 1


@requirement("R65", "R67", "R68", "R69", "R70", "R344")
@pytest.mark.parametrize(("mode", "cut"), [("wide", 26), ("narrow", 26), ("other", 26)])
async def test_a_turn_in_another_mode_goes_on_from_the_same_summary(shared_database: str, mode: str, cut: int) -> None:
    async with talking(shared_database, rolling_summary_compaction=PROFILES) as stage:
        await has_said(stage, *said(30))
        await stage.play("m31")
        chunks = await stage.play("m33", options=in_mode(mode))
        assert routing(chunks)["rolling_summary"]["profile_id"] == (None if mode == "other" else mode)
        record = await record_of(shared_database)
        assert record is not None
        assert (record.covers, record.head) == (((3, cut),), 2)
        rest = [f"m{n}" for n in range(cut + 1, 32)]
        assert last_told(stage) == ["m1", "m2", "[m3..m14][m15..m26]", *rest, "Ok.", "m33"]


@requirement("R69", "R70")
async def test_under_a_smaller_head_the_old_head_is_still_told(shared_database: str) -> None:
    async with talking(shared_database, rolling_summary_compaction=PROFILES) as stage:
        await has_said(stage, *said(20))
        await stage.play("m21", options=in_mode("wide"))
        await stage.play("m23", options=in_mode("narrow"))
        assert last_told(stage)[:6] == ["m1", "m2", "m3", "m4", "m5", "[m6..m17]"]


async def test_where_the_mode_switches_it_off_the_history_is_the_plain_one(shared_database: str) -> None:
    async with talking(shared_database, rolling_summary_compaction=PROFILES) as stage:
        await has_said(stage, *said(20))
        await stage.play("m21")
        chunks = await stage.play("m23", options=in_mode("off"))
        assert routing(chunks)["rolling_summary"]["enabled"] is False
        assert routing(chunks)["rolling_summary"]["reason"] == "disabled"
        assert last_told(stage) == [*[f"m{n}" for n in range(1, 22)], "Ok.", "m23"]


@requirement("R344")
@pytest.mark.parametrize(
    "options",
    [TurnOptions(mode="narrow"), in_mode("narrow"), TurnOptions(mode="narrow", custom_flags={"mode": "wide"})],
    ids=["option", "flag", "both"],
)
async def test_options_or_a_flag_name_the_mode(shared_database: str, options: TurnOptions) -> None:
    async with talking(shared_database, rolling_summary_compaction=PROFILES) as stage:
        chunks = await stage.play("Hello", options=options)
        assert routing(chunks)["rolling_summary"]["profile_id"] == "narrow"


@requirement("R344")
async def test_without_a_mode_of_its_own_the_personas_id_is_the_turns_mode(shared_database: str) -> None:
    given = {**PROFILES, "profiles_by_mode": {"demo": "wide"}}
    async with talking(shared_database, rolling_summary_compaction=given) as stage:
        chunks = await stage.play("Hello")
        assert routing(chunks)["rolling_summary"]["profile_id"] == "wide"


@requirement("R61", "R62", "R63", "R64")
async def test_a_hosts_round_goes_into_the_summary_whole_or_reaches_the_model_whole(shared_database: str) -> None:
    given = {**ROLLING, "max_messages_to_summarize_per_pass": 6}
    async with talking(shared_database, rolling_summary_compaction=given) as stage:
        past = [*said(1), *round_of("a", 2), *said(1), *round_of("b", 3), *said(1), *round_of("c", 3), *said(3)]
        await has_said(stage, *past)
        await stage.play("Go on.")
        record = await record_of(shared_database)
        assert record is not None
        # The head reaches into round a, so all of it is the head's; b fits into the pass whole, c would not.
        assert record.covers == ((5, 10),)
        asked = [call.id for message in stage.provider.requests[-1].messages for call in message.tool_calls]
        assert asked == ["a_0", "a_1", "c_0", "c_1", "c_2"]


@requirement("R61", "R339")
async def test_a_pause_that_was_answered_is_taken_by_a_later_pass_and_never_while_it_waits(
    shared_database: str,
) -> None:
    def answer(request: ModelRequest) -> list[Piece] | str:
        if asks_for_summary(request):
            return '{"summary_markdown": "S"}'
        if request.tools and request.messages[-1].content == "weather":
            return [ToolCall("w1", "get_weather", {"city": "Oslo"})]
        return "Ok."

    given = {**ROLLING, "tail_messages_to_keep": 1}
    async with talking(shared_database, answer, rolling_summary_compaction=given) as stage:
        await has_said(stage, *said(6))
        paused = await stage.play("weather", tools=[WEATHER])
        pending = await stage.pending()
        assert pending is not None
        await stage.pass_results(paused[-1]["stream_id"], result("w1", "rain"))
        await stage.play("And then?")
        record = await record_of(shared_database)
        assert record is not None
        assert record.covers == ((3, 10),)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(fails, "model_failed"), (writes(""), "empty_summary"), (writes('{"summary_markdown": " "}'), "empty_summary")],
    ids=["failed", "empty", "blank"],
)
async def test_a_failed_pass_never_fails_the_turn_and_keeps_the_summary_that_is_there(
    shared_database: str, answer: Answer, reason: str
) -> None:
    async with talking(shared_database, rolling_summary_compaction=ROLLING) as stage:
        await has_said(stage, *said(30))
        await stage.play("m31")
    before = await record_of(shared_database)
    async with talking(shared_database, answer, rolling_summary_compaction=ROLLING) as stage:
        chunks = await stage.play("m33")
        assert completed(chunks)
        assert routing(chunks)["rolling_summary"]["reason"] == reason
        assert routing(chunks)["rolling_summary"]["failures"] == 1
        assert last_told(stage)[:4] == ["m1", "m2", "[m3..m14]", "m15"]
    after = await record_of(shared_database)
    assert before is not None
    assert after is not None
    assert replace(after, failures=0, failed=None) == before


async def test_after_three_failures_in_a_row_it_is_not_tried_until_something_changes(shared_database: str) -> None:
    async with talking(shared_database, fails, rolling_summary_compaction=ROLLING) as stage:
        await has_said(stage, *said(20))
        reasons = [routing(await stage.play(f"try {n}"))["rolling_summary"]["reason"] for n in range(4)]
        assert reasons == ["model_failed"] * 3 + ["breaker"]
        assert passes(stage) == 3
    changed = {**ROLLING, "temperature": 0.3}
    async with talking(shared_database, rolling_summary_compaction=changed) as stage:
        block = routing(await stage.play("again"))["rolling_summary"]
        assert (block["did_compact"], block["failures"]) == (True, 0)


async def test_the_breaker_tries_again_once_as_many_messages_have_come_as_a_pass_needs(shared_database: str) -> None:
    async with talking(shared_database, fails, rolling_summary_compaction=ROLLING) as stage:
        await has_said(stage, *said(20))
        reasons = [routing(await stage.play(f"try {n}"))["rolling_summary"]["reason"] for n in range(6)]
        assert reasons == ["model_failed"] * 3 + ["breaker", "model_failed", "breaker"]


async def test_past_its_deadline_the_turn_goes_on_and_the_pass_is_tried_at_the_next_turn(shared_database: str) -> None:
    hold = Hold()

    def slow(request: ModelRequest) -> list[Piece] | str:
        return [hold, "{}"] if asks_for_summary(request) else "Ok."

    given = {**ROLLING, "deadline_seconds": 0.05}
    async with talking(shared_database, slow, rolling_summary_compaction=given) as stage:
        await has_said(stage, *said(20))
        chunks = await stage.play("m21")
        assert completed(chunks)
        assert hold.closed
        assert routing(chunks)["rolling_summary"]["reason"] == "deadline"
        assert last_told(stage) == [f"m{n}" for n in range(1, 22)]
    async with talking(shared_database, rolling_summary_compaction=ROLLING) as stage:
        assert routing(await stage.play("m23"))["rolling_summary"]["did_compact"]


async def test_what_a_pass_costs_is_part_of_the_turns_usage(shared_database: str) -> None:
    def answer(request: ModelRequest) -> list[Piece] | str:
        return ["{}" if asks_for_summary(request) else "Ok.", Usage(prompt_tokens=100, completion_tokens=7)]

    async with talking(shared_database, answer, rolling_summary_compaction=ROLLING) as stage:
        await has_said(stage, *said(20))
        chunks = await stage.play("m21")
        assert one(chunks, "final_response")["usage"]["prompt_tokens"] == 200
        assert routing(chunks)["rolling_summary"]["usage"]["total_tokens"] == 107


async def test_the_summarizer_is_asked_as_the_settings_say(shared_database: str) -> None:
    given = {
        **ROLLING,
        "model": "scripted:tiny",
        "temperature": 0.2,
        "max_output_tokens": 10,
        "system_prompt": "Sum up.",
    }
    async with talking(shared_database, rolling_summary_compaction=given) as stage:
        await has_said(stage, *said(20))
        await stage.play("m21")
        asked = stage.provider.requests[0]
        assert (asked.model, asked.temperature, asked.max_tokens) == ("tiny", 0.2, 64)
        assert asked.messages[0].content == "Sum up."
        assert asked.tools == ()


async def test_even_without_a_tail_the_turns_own_input_is_not_summarized(shared_database: str) -> None:
    given = {**ROLLING, "tail_messages_to_keep": 0, "max_messages_to_summarize_per_pass": 100}
    async with talking(shared_database, rolling_summary_compaction=given) as stage:
        await has_said(stage, *said(20))
        await stage.play("m21")
        assert last_told(stage) == ["m1", "m2", "[m3..m20]", "m21"]


async def test_errors_thoughts_and_rolled_back_turns_are_neither_summarized_nor_told(shared_database: str) -> None:
    given = {**ROLLING, "max_messages_to_summarize_per_pass": 100}
    async with talking(shared_database, rolling_summary_compaction=given) as stage:
        await has_said(stage, *said(8))
        await add(shared_database, Message("error", "It broke."), Message("thought", "Hm."), *said(8, 9))
        await rows(shared_database, "UPDATE messages SET not_sent = true WHERE content #>> '{}' = 'm5'")
        await stage.play("m17")
        everything = [str(message.content) for request in stage.provider.requests for message in request.messages]
        assert not [
            text for text in everything if "It broke." in text or "Hm." in text or '"m5"' in text or text == "m5"
        ]
        record = await record_of(shared_database)
        assert record is not None
        assert record.covers == ((3, 15),)


@requirement("R72")
async def test_a_summary_of_unknown_head_keeps_its_gap_and_can_be_made_longer(shared_database: str) -> None:
    async with talking(shared_database, rolling_summary_compaction=ROLLING) as stage:
        await has_said(stage, *said(30))
        await rows(
            shared_database,
            "INSERT INTO rolling_summaries (conversation, version, text, covers, message_count) "
            "VALUES ($1, 1, 'Old.', '[[7, 12]]', 6)",
            CONVERSATION,
        )
        await stage.play("m31")
        assert last_told(stage) == ["m1", "m2", "Old.[m13..m24]", *[f"m{n}" for n in range(25, 32)]]
        record = await record_of(shared_database)
        assert record is not None
        assert record.head is None


async def test_an_erased_conversation_leaves_no_summary(shared_database: str) -> None:
    async with talking(shared_database, rolling_summary_compaction=ROLLING) as stage:
        await has_said(stage, *said(20))
        await stage.play("m21")
        await stage.runtime.delete_conversation(ADA, CHAT)
        assert await rows(shared_database, "SELECT 1 FROM rolling_summaries") == []


async def test_a_write_of_another_version_or_fence_lands_nowhere(shared_database: str) -> None:
    async with talking(shared_database, rolling_summary_compaction=ROLLING) as stage:
        await has_said(stage, *said(20))
        await stage.play("m21")
    record = await record_of(shared_database)
    assert record is not None
    fence = (await rows(shared_database, "SELECT fence FROM conversations"))[0]["fence"]
    store = Database(shared_database, pool_size=2)
    late = replace(record, version=2, text="Late.")
    async with store.transaction() as connection:
        assert not await summaries.write(connection, late, seen=0, fence=fence)
        assert not await summaries.write(connection, late, seen=1, fence=fence - 1)
        assert await summaries.write(connection, late, seen=1, fence=fence)
        assert not await summaries.write(connection, late, seen=1, fence=fence)
    await store.close()


async def test_with_persistence_off_there_is_no_summary(shared_database: str) -> None:
    async with talking(
        shared_database, rolling_summary_compaction=ROLLING, enable_conversational_persistence=False
    ) as stage:
        chunks = await stage.play("Hello", options=TurnOptions())
        assert routing(chunks)["rolling_summary"]["reason"] == "persistence_off"
        assert last_told(stage) == ["Hello"]
