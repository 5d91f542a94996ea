"""What is not text: chunks that pass unjudged, chunks that a guard asks for, sources, failures, and costs."""

from dataclasses import replace
from typing import Any

import pytest

from app.domain.chunks import GmiChunk, GmiError, SourcesAvailable, SystemNotice, TextDelta, ToolCallRequest, UiCommands
from app.domain.turn import StreamStatus, TurnOptions
from app.guardrails.base import Evaluation, GuardConfig
from app.guardrails.registry import Guards, OutputMode
from app.providers.errors import failure
from tests.databases import rows
from tests.guardrails.acting import ALLOW, Acting, OutputOnly, blocks, replaces, says, streaming
from tests.guardrails.leaks import replay, status, tables, text_of
from tests.requirements import requirement
from tests.stage import WEATHER, Stage, one, result, running_stage
from tests.turn.playing import Act, Playing, asks, end, stop

pytestmark = pytest.mark.slow

MODES: list[OutputMode] = ["stream", "hold", "sentence", "until_input_ok"]
OTHERS: dict[str, GmiChunk] = {
    "tool_call_request": ToolCallRequest((asks("own"),), external=False),
    "ui_command": UiCommands(({"command_id": "open", "payload": {"what": "xylograph"}},)),
    "system_progress": SystemNotice("Looking for xylographs", 50),
    "metadata_update": SourcesAvailable(({"id": "1", "content": "xylograph"},)),
}
OPERATIONS = ["turn", "continuation", "resume"]


class Looks(OutputOnly):
    """Judges chunks without a text by what their fields say."""

    async def evaluate_output(self, context: Any, chunk: Any, sources: Any) -> Evaluation | None:
        await super().evaluate_output(context, chunk, sources)
        return self.rule(str(dict(chunk.fields)) if chunk.text is None else chunk.text)


async def play(stage: Stage, operation: str, chat: str) -> list[dict[str, Any]]:
    """Run the operation that the next act is for."""
    if operation == "turn":
        return await stage.play("Hello", conversation=chat)
    first = await stage.play("Hello", tools=[WEATHER], conversation=chat)
    pending = await stage.pending(chat)
    assert pending is not None
    if operation == "continuation":
        return await stage.pass_results(first[-1]["stream_id"], result("c0"))
    return await stage.resume(pending, result("c0"))


def acts(operation: str, *act: Any) -> list[Act]:
    before: list[Act] = [] if operation == "turn" else [[stop("c0")]]
    return [*before, list(act)]


def is_played(chunk: dict[str, Any]) -> bool:
    """Tell whether a chunk is one of the others, and not one that the runtime says by itself."""
    own = ("own", "xylo", "Looking for")
    return chunk["type"] in OTHERS and any(word in str(chunk) for word in own)


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("mode", MODES)
async def test_other_chunks_pass_unjudged_and_ahead_of_held_text(
    shared_database: str, mode: OutputMode, kind: str
) -> None:
    guard = Looks(blocks("xylo"), "g", GuardConfig(evaluate_streaming_chunks=True))
    scenes = [acts(operation, TextDelta("Well. "), OTHERS[kind], end("Well. ")) for operation in OPERATIONS]
    playing = Playing(*(act for scene in scenes for act in scene))
    async with running_stage(shared_database, gmis=playing, guards=Guards([guard], mode=mode)) as stage:
        for operation in OPERATIONS:
            chunks = await play(stage, operation, f"chat-{operation}")
            assert chunks[-1]["type"] == "final_response"
            own = [chunk["type"] for chunk in chunks if chunk["type"] == "text_delta" or is_played(chunk)]
            assert own == (["text_delta", kind] if mode not in {"hold", "sentence"} else [kind, "text_delta"])
        assert kind not in guard.kinds


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("mode", MODES)
async def test_a_guard_that_asks_for_a_kind_of_chunk_stops_the_turn_at_it(
    shared_database: str, mode: OutputMode, kind: str
) -> None:
    word = "own" if kind == "tool_call_request" else "xylo"
    guard = Looks(blocks(word), "g", GuardConfig(also=frozenset({kind})))
    scenes = [acts(operation, TextDelta("Well. "), OTHERS[kind], end("Well. ")) for operation in OPERATIONS]
    playing = Playing(*(act for scene in scenes for act in scene))
    async with running_stage(shared_database, gmis=playing, guards=Guards([guard], mode=mode)) as stage:
        for operation in OPERATIONS:
            chunks = await play(stage, operation, f"chat-{operation}")
            assert one(chunks, "error")["code"] == "NOT_THAT"
            assert word not in await replay(stage, chunks[-1]["stream_id"]) or word == "own"
            assert await status(stage, chunks[-1]["stream_id"]) is StreamStatus.BLOCKED
            kept = [role for role, content in await stage.said(f"chat-{operation}") if role == "assistant" and content]
            assert kept == []


@requirement("R181")
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_sources_reach_guards_during_the_stream_and_a_continuation_brings_them_along(
    shared_database: str, operation: str
) -> None:
    sources = ({"id": "1", "content": "xylograph"},)
    guard = streaming(says(ALLOW), "g")
    pausing: Act = [SourcesAvailable(sources), replace(stop("c0"), rag_sources=sources)]
    before: list[Act] = [] if operation == "turn" else [pausing]
    scene: list[Any] = [*([SourcesAvailable(sources)] if operation == "turn" else []), TextDelta("Well."), end("Well.")]
    async with running_stage(shared_database, gmis=Playing(*before, scene), guards=Guards([guard])) as stage:
        await play(stage, operation, "chat-1")
        assert [[source["id"] for source in seen] for seen in guard.sources] == [["1"]] * len(guard.sources)
        assert guard.kinds == ["text_delta", "final_response"]


@requirement("R180")
@pytest.mark.parametrize("operation", OPERATIONS[1:])
async def test_the_sources_of_the_paused_turn_are_with_the_calls_of_its_continuation(
    shared_database: str, operation: str
) -> None:
    sources = ({"id": "1", "content": "xylograph"},)
    pausing: Act = [SourcesAvailable(sources), replace(stop("c0"), rag_sources=sources)]
    guard = OutputOnly(says(ALLOW), "g", GuardConfig(also=frozenset({"tool_call_request"})))
    playing = Playing(pausing, [ToolCallRequest((asks("own"),), external=False), stop("c1")])
    async with running_stage(shared_database, gmis=playing, guards=Guards([guard])) as stage:
        await play(stage, operation, "chat-1")
    judged = [
        [source["id"] for source in seen]
        for chunk, seen in zip(guard.asked, guard.sources, strict=True)
        if chunk.type == "tool_call_request"
    ]
    assert judged == [["1"]] * 3  # the call of the turn, the runtime's own and the next of the host


@pytest.mark.parametrize("mode", MODES)
async def test_a_failure_drops_held_text_and_tells_of_itself(shared_database: str, mode: OutputMode) -> None:
    guard = OutputOnly(says(ALLOW), "g")
    async with running_stage(shared_database, guards=Guards([guard], mode=mode)) as stage:
        stage.provider.add(["First. Second. Third", failure("overloaded", "scripted", "It is full.")])
        chunks = await stage.play("Hello")
        assert (one(chunks, "error")["code"], chunks[-1]["type"]) == ("LLM_PROVIDER_ERROR", "final_response")
        assert text_of(chunks) == {"hold": "", "sentence": "First. "}.get(mode, "First. Second. Third")
        assert "error" in guard.kinds


async def test_a_guard_may_block_the_words_of_a_failure(shared_database: str) -> None:
    guard = Looks(blocks("xylo"), "g")
    playing = Playing([GmiError("X", "The xylograph is broken"), end(None)])
    async with running_stage(shared_database, gmis=playing, guards=Guards([guard])) as stage:
        chunks = await stage.play("Hello")
        assert one(chunks, "error")["code"] == "NOT_THAT"
        assert "xylo" not in await replay(stage, chunks[-1]["stream_id"])
        assert await status(stage, chunks[-1]["stream_id"]) is StreamStatus.BLOCKED


async def test_text_that_outgrows_a_guards_count_waits_for_the_whole_reply(shared_database: str) -> None:
    guard = OutputOnly(blocks("xylo"), "g", GuardConfig(max_streaming_evaluations=1))
    async with running_stage(shared_database, guards=Guards([guard], mode="sentence")) as stage:
        stage.provider.add(["One. Two. Th", "ree. The xylograph. ", "Five. Six"])
        chunks = await stage.play("Hello")
        assert text_of(chunks) == "One. "
        assert chunks[-1]["code"] == "NOT_THAT"
        assert len(guard.asked) == 2


async def test_a_guard_that_needs_the_whole_reply_makes_sentences_wait(shared_database: str) -> None:
    guard = OutputOnly(says(ALLOW), "g", GuardConfig(whole_reply=True))
    async with running_stage(shared_database, guards=Guards([guard], mode="sentence")) as stage:
        stage.provider.add(["One. ", "Two. ", "Three. "])
        assert [chunk["text_delta"] for chunk in await stage.play("Hello") if chunk["type"] == "text_delta"] == [
            "One. ", "Two. ", "Three. ",
        ]  # fmt: skip
        assert guard.kinds == ["final_response"]


async def test_sentences_go_out_one_behind_the_model_and_a_pattern_over_two_is_seen(shared_database: str) -> None:
    guard = OutputOnly(blocks("Two. Thr"), "g")
    async with running_stage(shared_database, guards=Guards([guard], mode="sentence")) as stage:
        stage.provider.add(["One. ", "Two. ", "Three. ", "Four"])
        assert text_of(await stage.play("Hello")) == "One. "


async def test_how_long_text_was_held_is_told_with_the_reply(shared_database: str) -> None:
    async with running_stage(shared_database, guards=Guards([OutputOnly(says(ALLOW), "g")], mode="hold")) as stage:
        stage.provider.add("Fine.")
        assert (await stage.play("Hello"))[-1]["metadata"]["guardrail"]["held_ms"] >= 0


async def test_the_settings_and_a_persona_bring_guards(shared_database: str, tmp_path: Any) -> None:
    (tmp_path / "demo.yaml").write_text("id: demo\nname: Demo\nsystem_prompt: Hi.\n")
    (tmp_path / "shy.yaml").write_text("id: shy\nname: Shy\nsystem_prompt: Hi.\nguardrails: [pii]\n")
    more: dict[str, Any] = {"personas_dir": tmp_path, "guardrail_deny_patterns": ["xylograph"]}
    async with running_stage(shared_database, **more) as stage:
        assert (await stage.play("A xylograph?"))[0]["code"] == "GUARDRAIL_BLOCKED"
        stage.provider.add("It is a xylo**graph**.", "Write to ada@example.com", "Write to ada@example.com")
        assert (await stage.play("What?"))[-1]["code"] == "GUARDRAIL_BLOCKED"
        assert (await stage.play("Who?"))[-1]["final_response_text"] == "Write to ada@example.com"
        shy = await stage.play("Who?", persona_id="shy", conversation="chat-2")
        assert shy[-1]["final_response_text"] == "Write to [email]"


async def test_a_judging_model_is_asked_and_its_calls_are_kept(shared_database: str) -> None:
    sources = ({"id": "1", "content": "Berlin has 3.9 million inhabitants."},)
    playing = Playing([SourcesAvailable(sources), TextDelta("Berlin is small."), end("Berlin is small.")])
    options = {"grounding": {"action": "block", "model": "scripted:judge"}}
    more: dict[str, Any] = {"guardrails": ["grounding"], "guardrail_options": options}
    async with running_stage(shared_database, gmis=playing, **more) as stage:
        stage.provider.add('{"score": 0.1, "unsupported": 1}')
        chunks = await stage.play("Hello")
        assert (chunks[-1]["code"], chunks[-1]["type"]) == ("NOT_GROUNDED", "error")
        assert "3.9 million" in str(stage.provider.requests[0].messages)
        kept = await rows(shared_database, "SELECT purpose, model FROM usage_ledger")
        assert [tuple(row) for row in kept] == [("judge", "judge")]


async def test_a_guard_that_sees_input_and_output_is_asked_once_for_each(shared_database: str) -> None:
    guard = Acting(says(ALLOW), "g")
    async with running_stage(shared_database, guards=Guards([guard])) as stage:
        stage.provider.add("Fine.")
        await stage.play("Hello")
        assert guard.texts == ["Hello", "Fine."]


@pytest.mark.parametrize(("new", "valid"), [("[email]", True), ("", False)])
async def test_a_reply_that_is_data_is_read_again_when_a_guard_has_changed_it(
    shared_database: str,
    new: str,
    valid: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    mail = "ada@example.com"
    schema = {"type": "object", "properties": {"to": {"type": "string", "minLength": 1}}, "required": ["to"]}
    guard = OutputOnly(replaces(mail, new), "g", GuardConfig(can_sanitize=True))
    async with running_stage(shared_database, guards=Guards([guard])) as stage:
        stage.provider.add(f'{{"to": "{mail}"}}')
        chunks = await stage.play("Hello", options=TurnOptions(structured_reply={"schema": schema}))
        told = chunks[-1]["structured"]
        assert (told["value"], told["valid"], told["stage"]) == ({"to": new}, valid, "post_guardrail")
        assert mail not in await replay(stage, chunks[-1]["stream_id"])
        assert mail not in await tables(shared_database)
