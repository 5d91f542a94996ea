"""The corners of guardrails: empty replacements, sanitizers that meet failures, guards that say nothing."""

from typing import Any

import pytest

from app.domain.turn import StreamStatus
from app.guardrails.base import Action, Evaluation, GuardConfig
from app.guardrails.registry import Guards, OutputMode
from app.providers.errors import failure
from app.providers.scripted import call
from tests.guardrails.acting import Acting, OutputOnly, blocks, replaces, says
from tests.guardrails.leaks import replay, status, text_of
from tests.stage import WEATHER, one, result, running_stage, types

MODES: list[OutputMode] = ["stream", "hold", "sentence", "until_input_ok"]
PIECES = GuardConfig(evaluate_streaming_chunks=True)


async def test_a_block_whose_replacement_is_empty_is_an_error_wherever_it_falls(shared_database: str) -> None:
    for guard in (OutputOnly(blocks("xylo", ""), "g"), OutputOnly(blocks("xylo", ""), "g", PIECES)):
        for mode in MODES:
            async with running_stage(shared_database, guards=Guards([guard], mode=mode)) as stage:
                chat = f"{mode}-{guard.config.evaluate_streaming_chunks}"
                stage.provider.add(["A xylograph."])
                chunks = await stage.play("Hello", conversation=chat)
                assert one(chunks, "error")["code"] == "NOT_THAT"
                assert "final_response" not in types(chunks)
                assert await stage.said(chat) == [("user", "Hello")]
                assert await status(stage, chunks[-1]["stream_id"]) is StreamStatus.BLOCKED


async def test_a_sanitizer_adds_no_text_to_a_failure_and_a_failure_keeps_its_code_and_words(
    shared_database: str,
) -> None:
    anything = says(Evaluation(Action.SANITIZE, "tidied", "TIDY", modified_text="Something else."))
    plain_fields: set[str] = set()
    for guards in (Guards(), Guards([OutputOnly(anything, "g", GuardConfig(can_sanitize=True))])):
        async with running_stage(shared_database, guards=guards) as stage:
            stage.provider.add([failure("invalid_request", "scripted", "It is full.")])
            chunks = await stage.play("Hello")
            told, last = one(chunks, "error"), one(chunks, "final_response")
            assert (told["code"], told["message"]) == ("LLM_PROVIDER_ERROR", "It is full.")
            assert (last["error"]["code"], last["final_response_text"]) == ("LLM_PROVIDER_ERROR", None)
            assert "Something else." not in str(chunks)
            plain_fields = plain_fields or set(told)
            assert set(told) - {"metadata"} == plain_fields


@pytest.mark.parametrize("mode", MODES)
async def test_a_guard_that_says_nothing_of_pieces_or_has_no_method_for_them_lets_all_pass(
    shared_database: str, mode: OutputMode
) -> None:
    class InputAlone(Acting):
        evaluate_output = None  # type: ignore[assignment]

    silent = OutputOnly(says(None), "silent", PIECES)
    guards = Guards([silent, InputAlone(says(None), "input", PIECES)], mode=mode)
    async with running_stage(shared_database, guards=guards) as stage:
        stage.provider.add(["One. ", "Two. ", "Three."])
        chunks = await stage.play("Hello")
        assert (text_of(chunks), chunks[-1]["final_response_text"]) == ("One. Two. Three.", "One. Two. Three.")
        assert silent.texts[-1] == "One. Two. Three."
        assert '"redacted":true' not in await replay(stage, chunks[-1]["stream_id"])


@pytest.mark.parametrize("way", ["continuation", "resume"])
async def test_a_continuations_guards_are_told_for_whom_the_pause_is_and_judge_before_its_text_is_stored(
    shared_database: str, way: str
) -> None:
    kept: list[Any] = []

    class Watching(OutputOnly):
        async def evaluate_output(self, context: Any, chunk: Any, sources: Any) -> Evaluation | None:
            if chunk.is_final:
                kept.append([role for role, _ in await stage.said()])
            return await super().evaluate_output(context, chunk, sources)

    guard = Watching(replaces("xylo", "photo"), "g", GuardConfig(can_sanitize=True))
    async with running_stage(shared_database, guards=Guards([guard], mode="hold")) as stage:
        stage.provider.add([call(WEATHER.name, {"city": "Rome"}, id="c1")], ["A xylograph."])
        first = await stage.play("Hello", tools=[WEATHER])
        pending = await stage.pending()
        assert pending is not None
        chunks = (
            await stage.pass_results(first[-1]["stream_id"], result("c1"))
            if way == "continuation"
            else await stage.resume(pending, result("c1"))
        )
        assert kept == [["user", "assistant", "tool"]]
        assert chunks[-1]["final_response_text"] == chunks[-1]["final_response_text_plain"] == "A photograph."
        assert (await stage.said())[-1] == ("assistant", "A photograph.")
        context = guard.contexts[-1]
        assert (context.user_id, context.conversation_id, context.persona_id) == ("ada", "chat-1", "demo")
