"""Held text has a bound: past it a reply is judged in parts, and the whole of it at its end all the same."""

from typing import Any

import pytest

from app.guardrails.base import GuardConfig
from app.guardrails.registry import Guards, OutputMode
from app.providers.scripted import call
from app.turn.facade.guarded_stream import MOST_APART
from tests.guardrails.acting import ALLOW, FLAG, OutputOnly, blocks, replaces
from tests.guardrails.leaks import places, readable
from tests.stage import WEATHER, one, running_stage, types

WORD = "xylograph"
LONG = [f"This is sentence {number} of many. " for number in range(40)]
TEXT = "".join(LONG)
CAPPED = GuardConfig(max_streaming_evaluations=2)
EACH = GuardConfig(evaluate_streaming_chunks=True)


def deltas(chunks: list[dict[str, Any]]) -> list[str]:
    return [chunk["text_delta"] for chunk in chunks if chunk["type"] == "text_delta"]


@pytest.mark.parametrize(("mode", "config"), [("hold", GuardConfig()), ("sentence", CAPPED)])
async def test_a_long_reply_goes_out_in_parts_and_no_part_ends_within_a_sentence(
    shared_database: str, mode: OutputMode, config: GuardConfig
) -> None:
    guard = OutputOnly(blocks(WORD), "g", config)
    async with running_stage(shared_database, guards=Guards([guard], mode=mode, max_held=400)) as stage:
        stage.provider.add(LONG)
        chunks = await stage.play("Hello")
        said = deltas(chunks)
        assert "".join(said) == TEXT
        assert len(said) > 2
        assert all(part.endswith(("many. ", "many.")) for part in said)
        assert one(chunks, "final_response")["final_response_text"] == TEXT
        assert guard.texts[-1] == TEXT
        judged = [text for text in guard.texts[:-1] if text is not None]
        assert max(map(len, judged)) < 400 + 2 * len(LONG[0])


async def test_below_the_bound_nothing_goes_out_before_the_verdict_on_the_whole(shared_database: str) -> None:
    guard = OutputOnly(blocks(WORD), "g")
    async with running_stage(shared_database, guards=Guards([guard], mode="hold", max_held=len(TEXT))) as stage:
        stage.provider.add(LONG)
        await stage.play("Hello")
        assert guard.texts == [TEXT]


@pytest.mark.parametrize("stops", [False, True])
async def test_a_part_that_is_blocked_ends_the_turn_and_is_nowhere(shared_database: str, stops: bool) -> None:  # noqa: FBT001 - a case
    guard = OutputOnly(blocks(WORD), "g")
    async with running_stage(shared_database, guards=Guards([guard], mode="hold", max_held=400)) as stage:
        ends = [call(WEATHER.name, {"city": "Berlin"}, id="c1")] if stops else []
        stage.provider.add([*LONG[:20], f"A {WORD}. ", *LONG[20:], *ends])
        chunks = await stage.play("Hello", tools=[WEATHER])
        assert types(chunks)[-1] == "error"
        assert deltas(chunks)
        assert places(await readable(stage, [chunks[-1]["stream_id"]]), WORD) == []


@pytest.mark.parametrize("where", [3, 38])
async def test_what_is_changed_in_a_part_is_changed_wherever_it_is_read(shared_database: str, where: int) -> None:
    guard = OutputOnly(replaces(WORD, "picture"), "g", GuardConfig(can_sanitize=True))
    async with running_stage(shared_database, guards=Guards([guard], mode="hold", max_held=400)) as stage:
        stage.provider.add([*LONG[:where], f"A {WORD}. ", *LONG[where:]])
        chunks = await stage.play("Hello")
        clean = TEXT[: len("".join(LONG[:where]))] + "A picture. " + "".join(LONG[where:])
        assert one(chunks, "final_response")["final_response_text"] == clean
        assert clean.startswith("".join(deltas(chunks)))
        assert places(await readable(stage, [chunks[-1]["stream_id"]]), WORD) == []


async def test_text_in_parts_in_front_of_a_request_is_told_whole(shared_database: str) -> None:
    guard = OutputOnly(replaces(WORD, "picture"), "g", GuardConfig(can_sanitize=True))
    async with running_stage(shared_database, guards=Guards([guard], mode="hold", max_held=400)) as stage:
        stage.provider.add([*LONG[:39], f"A {WORD}.", call(WEATHER.name, {"city": "Berlin"}, id="c1")], "Ok.")
        chunks = await stage.play("Hello", tools=[WEATHER])
        assert "".join(deltas(chunks)) == "".join(LONG[:39]) + "A picture."
        assert types(chunks)[-1] == "tool_call_request"


async def test_a_text_without_sentences_is_judged_in_parts_too(shared_database: str) -> None:
    guard = OutputOnly(blocks(WORD), "g")
    async with running_stage(shared_database, guards=Guards([guard], mode="hold", max_held=100)) as stage:
        stage.provider.add(["x" * 50] * 7)
        chunks = await stage.play("Hello")
        assert "".join(deltas(chunks)) == "x" * 350
        assert len(deltas(chunks)) > 1


async def test_a_guard_of_pieces_is_told_what_went_before_once_and_not_again_with_the_parts(
    shared_database: str,
) -> None:
    guard = OutputOnly(blocks(WORD), "g", EACH)
    async with running_stage(shared_database, guards=Guards([guard], mode="hold", max_held=400)) as stage:
        stage.provider.add(LONG)
        await stage.play("Hello")
        befores = [chunk.before for chunk in guard.asked if chunk.type == "text_delta"]
        assert befores == [len("".join(LONG[:place])) for place in range(len(LONG))]


async def test_very_many_pieces_go_out_in_few_and_what_is_told_of_one_stays_with_it(shared_database: str) -> None:
    words = [f"word {number} " for number in range(1000)]
    guard = OutputOnly(lambda text: FLAG if text in words[500:502] else ALLOW, "g", EACH)
    async with running_stage(shared_database, guards=Guards([guard], mode="hold")) as stage:
        stage.provider.add(words)
        chunks = await stage.play("Hello")
        assert "".join(deltas(chunks)) == "".join(words)
        assert len(deltas(chunks)) < MOST_APART + 30
        told = [chunk for chunk in chunks if chunk["type"] == "text_delta" and "metadata" in chunk]
        assert deltas(told) == words[500:502]


async def test_few_pieces_go_out_as_they_came(shared_database: str) -> None:
    words = [f"word {number} " for number in range(MOST_APART)]
    async with running_stage(shared_database, guards=Guards([OutputOnly(blocks(WORD), "g")], mode="hold")) as stage:
        stage.provider.add(words)
        assert deltas(await stage.play("Hello")) == words
