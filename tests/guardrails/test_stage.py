"""Guards at work on whole operations: each mode, each verdict, each kind of operation, with and without a request."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.domain.turn import StreamStatus
from app.guardrails.base import GuardConfig
from app.guardrails.registry import Guards, OutputMode, Report
from app.providers.scripted import Piece, call
from tests.guardrails.acting import Acting, OutputOnly, blocks, replaces
from tests.guardrails.leaks import places, readable, replay, status, text_of
from tests.requirements import requirement
from tests.stage import CHAT, WEATHER, Stage, one, result, running_stage, types

WORD = "xylograph"
HALF = "xylo"
PIECES = ["First this. Then it is a xylo", "graph, you see. ", "It ends here."]
TEXT = "".join(PIECES)
CLEAN = TEXT.replace(WORD, "picture")
OPERATIONS = ["turn", "continuation", "resume"]
MODES: Sequence[OutputMode] = ["stream", "hold", "sentence", "until_input_ok"]
INSTEAD = "Let us talk of something else."
HOLDING = {"hold", "sentence"}

GUARDS = {
    "allow": lambda: OutputOnly(blocks("nothing of the kind"), "g"),
    "block": lambda: OutputOnly(blocks(WORD), "g"),
    "replace": lambda: OutputOnly(blocks(WORD, INSTEAD), "g"),
    "sanitize": lambda: OutputOnly(replaces(WORD, "picture"), "g", GuardConfig(can_sanitize=True)),
}


async def run(stage: Stage, operation: str, *, stops: bool, chat: str = CHAT) -> tuple[list[dict[str, Any]], list[str]]:
    """Run one operation whose model writes the text; gives its chunks, and the streams that there are."""
    ends: list[Piece] = [call(WEATHER.name, {"city": "Berlin"}, id="c9")] if stops else []
    if operation == "turn":
        stage.provider.add([*PIECES, *ends])
        chunks = await stage.play("Hello", tools=[WEATHER], conversation=chat)
        return chunks, [chunks[-1]["stream_id"]]
    stage.provider.add([call(WEATHER.name, {"city": "Berlin"}, id="c1")], [*PIECES, *ends])
    first = (await stage.play("Hello", tools=[WEATHER], conversation=chat))[-1]["stream_id"]
    pending = await stage.pending(chat)
    assert pending is not None
    if operation == "continuation":
        return await stage.pass_results(first, result("c1")), [first]
    chunks = await stage.resume(pending, result("c1"))
    return chunks, [first, chunks[-1]["stream_id"]]


@requirement("R88", "R90", "R235", "R236", "R237", "R238", "R239", "R240", "R241", "R347")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("verdict", GUARDS)
async def test_a_verdict_holds_in_each_mode_for_each_operation(
    shared_database: str, verdict: str, mode: OutputMode
) -> None:
    async with running_stage(shared_database, guards=Guards([GUARDS[verdict]()], mode=mode)) as stage:
        for operation in OPERATIONS:
            for stops in (False, True):
                chat = f"{operation}-{stops}"
                chunks, streams = await run(stage, operation, stops=stops, chat=chat)
                await check_end(stage, verdict, chunks, stops=stops, chat=chat)
                check_text(verdict, mode, chunks, stops=stops)
                if verdict != "allow":
                    found = await readable(stage, streams, chat)
                    assert places(found, WORD) == []
                    assert ('"redacted":true' in found[f"replay {streams[-1]}"]) == (mode not in HOLDING)


async def check_end(stage: Stage, verdict: str, chunks: list[dict[str, Any]], *, stops: bool, chat: str) -> None:
    """See what is said last, what is kept, and what becomes of the stream."""
    last = chunks[-1]
    ended = await status(stage, last["stream_id"])
    pending = await stage.pending(chat)
    kept = [content for role, content in await stage.said(chat) if role == "assistant" and content]
    if verdict in {"allow", "sanitize"}:
        assert kept == [TEXT if verdict == "allow" else CLEAN]
        assert last["type"] == ("tool_call_request" if stops else "final_response")
        assert (pending is not None) == stops
        assert ended is (StreamStatus.PAUSED if stops else StreamStatus.COMPLETED)
        if not stops:
            assert last["final_response_text"] == last["final_response_text_plain"] == kept[0]
        return
    assert ended is StreamStatus.BLOCKED
    assert pending is None
    assert "tool_call_request" not in types(chunks)
    assert last["gmi_instance_id"] == "guardrail"
    assert last["metadata"]["guardrail"]["output"][0]["reason_code"] == "NOT_THAT"
    if verdict == "block":
        assert (last["type"], last["code"], last["message"]) == ("error", "NOT_THAT", "not that")
        assert kept == []
    else:
        assert last["final_response_text"] == last["final_response_text_plain"] == INSTEAD
        assert kept == [INSTEAD]
    late = await stage.pass_results(last["stream_id"], result("c9"))
    assert [(chunk["code"], chunk["details"]["reason"]) for chunk in late] == [("TOOL_ERROR", "blocked")]


def check_text(verdict: str, mode: str, chunks: list[dict[str, Any]], *, stops: bool) -> None:
    """See which pieces went out while the operation ran."""
    text = text_of(chunks)
    if verdict == "allow":
        assert text == TEXT
    elif mode in HOLDING:
        assert HALF not in str(chunks)
        if verdict == "sanitize":
            assert text == (CLEAN if stops or mode == "sentence" else "")
    elif verdict == "sanitize" and stops:
        assert text == TEXT + CLEAN
    else:
        assert text == TEXT


@pytest.mark.parametrize("mode", MODES)
async def test_a_guard_of_pieces_stops_the_turn_at_once_and_the_model_is_read_no_further(
    shared_database: str, mode: OutputMode
) -> None:
    guard = OutputOnly(blocks("graph"), "g", GuardConfig(evaluate_streaming_chunks=True))
    async with running_stage(shared_database, guards=Guards([guard], mode=mode)) as stage:
        chunks, streams = await run(stage, "turn", stops=True)
        assert chunks[-1]["code"] == "NOT_THAT"
        assert await status(stage, streams[0]) is StreamStatus.BLOCKED
        assert "It ends here." not in str([asked.text for asked in guard.asked]) or mode == "sentence"
        assert await stage.said() == [("user", "Hello")]
        assert places(await readable(stage, streams), HALF, "graph") == []


@pytest.mark.parametrize("mode", ["stream", "hold"])
async def test_a_sanitizer_of_pieces_changes_them_before_they_are_seen(shared_database: str, mode: OutputMode) -> None:
    config = GuardConfig(evaluate_streaming_chunks=True, can_sanitize=True)
    guard = OutputOnly(replaces("you see", "we see"), "g", config)
    async with running_stage(shared_database, guards=Guards([guard], mode=mode)) as stage:
        chunks, streams = await run(stage, "turn", stops=False)
        assert text_of(chunks) == (TEXT.replace("you see", "we see") if mode == "stream" else "")
        assert chunks[-1]["final_response_text"] == TEXT.replace("you see", "we see")
        assert '"redacted":true' not in await replay(stage, streams[0])
        assert places(await readable(stage, streams), "you see") == []


async def test_a_piece_of_which_nothing_is_left_is_not_sent(shared_database: str) -> None:
    config = GuardConfig(evaluate_streaming_chunks=True, can_sanitize=True)
    guard = OutputOnly(replaces("It ends here.", ""), "g", config)
    async with running_stage(shared_database, guards=Guards([guard])) as stage:
        chunks, _ = await run(stage, "turn", stops=False)
        assert [chunk["text_delta"] for chunk in chunks if chunk["type"] == "text_delta"] == PIECES[:2]


async def test_without_guards_a_stream_is_not_touched(shared_database: str) -> None:
    async with running_stage(shared_database, guards=Guards(mode="hold")) as stage:
        chunks, _ = await run(stage, "turn", stops=False)
        assert [chunk["text_delta"] for chunk in chunks if chunk["type"] == "text_delta"] == PIECES
        assert all("metadata" not in chunk for chunk in chunks)


async def test_reports_tell_of_each_final_chunk_and_each_block(shared_database: str) -> None:
    told: list[Report] = []
    guard = OutputOnly(replaces(WORD, "picture"), "s", GuardConfig(can_sanitize=True))
    blocker = OutputOnly(blocks("Stop"), "b")
    guards = Guards([guard, blocker], on_verdict=told.append)
    async with running_stage(shared_database, guards=guards) as stage:
        chunks, streams = await run(stage, "turn", stops=False)
        assert told == [Report(streams[0], "sanitize", "s", None, CLEAN)]
        stage.provider.add("Stop it")
        chunks = await stage.play("Again")
        assert told[1:] == [Report(chunks[-1]["stream_id"], "block", "b", "NOT_THAT", None)]
        told.clear()
        await run(stage, "turn", stops=True)
        assert told == []


async def test_a_guard_is_told_for_whom_it_judges(shared_database: str) -> None:
    guard = Acting(blocks("nothing"), "g")
    async with running_stage(shared_database, guards=Guards([guard])) as stage:
        await run(stage, "resume", stops=False)
        assert {(c.user_id, c.session_id, c.persona_id, c.conversation_id) for c in guard.contexts} == {
            ("ada", CHAT, "demo", CHAT)
        }
        assert len(guard.contexts) == 2


@pytest.mark.parametrize("kind", ["tool_call_request"])
async def test_a_guard_that_asks_for_requests_can_keep_one_back(shared_database: str, kind: str) -> None:
    class Looks(OutputOnly):
        async def evaluate_output(self, context: Any, chunk: Any, sources: Any) -> Any:
            await super().evaluate_output(context, chunk, sources)
            return self.rule(str(chunk.fields)) if chunk.type == kind else None

    guard = Looks(blocks("Berlin"), "g", GuardConfig(also=frozenset({kind})))
    async with running_stage(shared_database, guards=Guards([guard])) as stage:
        stage.provider.add([call(WEATHER.name, {"city": "Berlin"}, id="c1")])
        chunks = await stage.play("Hello", tools=[WEATHER])
        assert [chunk["code"] for chunk in chunks if chunk["type"] == "error"] == ["NOT_THAT"]
        assert guard.kinds == [kind]
        assert await stage.pending() is None
        assert await stage.said() == [("user", "Hello")]
        one(chunks, "error")
