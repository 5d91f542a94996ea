"""Text that an operation leaves when it is cut short: judged like a reply before it is kept, however the end came."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.domain.errors import GuardrailMissingError
from app.domain.turn import StreamStatus, TurnOptions
from app.domain.views import Started
from app.guardrails.base import Evaluation, GuardConfig, GuardContext, OutputChunk, Sources
from app.guardrails.registry import Guards
from app.providers.errors import failure
from app.providers.scripted import Hold, ScriptedProvider, call
from app.turn.orchestrator.partial import UnjudgedError, judged_partial
from tests.databases import execute, rows
from tests.guardrails.acting import ALLOW, Acting, Hanging, OutputOnly, blocks, breaks, replaces, says
from tests.guardrails.leaks import places, readable, replay
from tests.stage import ADA, CHAT, WEATHER, Stage, running_stage, turn_input
from tests.turn.test_setbacks import BROKEN

WORD = "xylograph"
CLEAN = "The picture is"


def stumbles(text: str | None) -> Evaluation | None:
    return breaks(text) if text and WORD in text else None


VERDICTS: dict[str, tuple[Callable[[], Acting], str | None]] = {
    "allow": (lambda: OutputOnly(says(ALLOW), "g"), "The xylograph is"),
    "block": (lambda: OutputOnly(blocks(WORD), "g"), None),
    "replace": (lambda: OutputOnly(blocks(WORD, "Something else."), "g"), "Something else."),
    "sanitize": (lambda: OutputOnly(replaces(WORD, "picture"), "g", GuardConfig(can_sanitize=True)), CLEAN),
    "closed": (lambda: OutputOnly(stumbles, "g", GuardConfig(fail_closed=True)), None),
}
each_verdict = pytest.mark.parametrize(
    "verdict",
    [pytest.param(name, marks=() if name in {"block", "sanitize"} else pytest.mark.slow) for name in VERDICTS],
)


@asynccontextmanager
async def writing(stage: Stage, hold: Hold, **more: Any) -> AsyncIterator[Started]:
    """Have a turn write and stop in the middle, with its text durable."""
    stage.provider.add(["The xylo", "graph is", hold])
    started = await stage.runtime.start_turn(turn_input("Hello", **more))
    await asyncio.wait_for(hold.reached.wait(), 20)
    await stage.runtime._services.log.settle()
    yield started
    hold.release()


async def closed(stage: Stage, stream_id: str) -> None:
    async with asyncio.timeout(30):
        frames = await stage.runtime.open_events(ADA, stream_id, None, follow=False)
        async for _ in frames or nothing():
            pass
    assert (await stage.runtime.stream_state(ADA, stream_id)).status.closed


async def nothing() -> AsyncIterator[bytes]:
    for piece in list[bytes]():
        yield piece


async def check(stage: Stage, stream_id: str, verdict: str, status: StreamStatus) -> None:
    """See that what was kept is what passed, in all places."""
    left = VERDICTS[verdict][1]
    view = await stage.runtime.stream_state(ADA, stream_id)
    assert view.status is status
    assert view.final_response is not None
    assert view.final_response["final_response_text"] == left
    assert await stage.said() == [("user", "Hello"), *([("assistant", left)] if left else [])]
    again = await replay(stage, stream_id)
    assert ('"redacted":true' in again) == (verdict != "allow")
    if verdict != "allow":
        assert places(await readable(stage, [stream_id]), WORD, "xylo") == []


@each_verdict
async def test_a_cancelled_turn_keeps_of_its_text_what_passes(shared_database: str, verdict: str) -> None:
    async with running_stage(shared_database, guards=Guards([VERDICTS[verdict][0]()])) as stage:
        async with writing(stage, Hold()) as started:
            assert await stage.runtime.cancel(ADA, started.stream_id) == "cancelling"
            await closed(stage, started.stream_id)
        await check(stage, started.stream_id, verdict, StreamStatus.CANCELLED)


@each_verdict
async def test_a_turn_that_took_too_long_keeps_of_its_text_what_passes(shared_database: str, verdict: str) -> None:
    async with running_stage(shared_database, guards=Guards([VERDICTS[verdict][0]()])) as stage:
        async with writing(stage, Hold(), options=TurnOptions(turn_timeout_seconds=1.0)) as started:
            await closed(stage, started.stream_id)
        await check(stage, started.stream_id, verdict, StreamStatus.FAILED)


@each_verdict
async def test_a_turn_whose_process_went_keeps_of_its_text_what_passes(shared_database: str, verdict: str) -> None:
    times: dict[str, Any] = {"lease_seconds": 2, "lease_renew_seconds": 1}
    guards = Guards([VERDICTS[verdict][0]()])
    async with (
        running_stage(shared_database, guards=guards, **times) as first,
        writing(first, Hold()) as started,
        running_stage(shared_database, ScriptedProvider(), guards=guards, **times) as second,
    ):
        gone = first.runtime._services.lease.id
        await rows(shared_database, "UPDATE replicas SET dead = true WHERE id = $1", gone)
        await closed(second, started.stream_id)
        await check(second, started.stream_id, verdict, StreamStatus.FAILED)
        assert '"code":"TURN_INTERRUPTED"' in await replay(second, started.stream_id)


@each_verdict
async def test_a_turn_that_did_not_make_way_in_time_keeps_of_its_text_what_passes(
    shared_database: str, verdict: str
) -> None:
    guards = Guards([VERDICTS[verdict][0]()])
    async with (
        running_stage(shared_database) as first,
        writing(first, Hold()) as started,
        running_stage(shared_database, ScriptedProvider(["Now."]), guards=guards) as second,
    ):
        # Nobody tells the first process, so that it never gives way by itself.
        first.runtime._services.cancels.forget((await fence(shared_database))[0])
        chunks = await second.play("Me first", on_busy="interrupt")
        assert chunks[-1]["type"] == "final_response"
        left = VERDICTS[verdict][1]
        assert (await second.said())[:2] == [("user", "Hello"), ("assistant", left) if left else ("user", "Me first")]
        if verdict != "allow":
            assert places(await readable(second, [started.stream_id]), WORD, "xylo") == []


async def fence(database: str) -> list[int]:
    return [row["fence"] for row in await rows(database, "SELECT fence FROM conversations")]


async def test_a_guard_that_never_answers_does_not_keep_an_end_back(
    shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.turn.facade.guarded_stream.LAST_WORD_SECONDS", 0.05)

    class HangsAtOutput(Hanging):
        evaluate_input = None  # type: ignore[assignment]

    guards = Guards([HangsAtOutput(says(ALLOW), "g")])
    async with running_stage(shared_database, guards=guards) as stage:
        async with writing(stage, Hold()) as started:
            await stage.runtime.cancel(ADA, started.stream_id)
            await closed(stage, started.stream_id)
        assert await stage.said() == [("user", "Hello")]
        assert "xylo" not in await replay(stage, started.stream_id)


async def test_a_cancel_that_comes_again_does_not_break_into_the_last_word(shared_database: str) -> None:
    guard = Deciding()
    async with running_stage(shared_database, guards=Guards([guard])) as stage:
        async with writing(stage, Hold()) as started:
            for _ in range(2):
                assert await stage.runtime.cancel(ADA, started.stream_id) == "cancelling"
                await asyncio.wait_for(guard.begun.wait(), 20)
            await asyncio.sleep(0)  # a cancel that had an effect would have it now
            guard.go.set()
            await closed(stage, started.stream_id)
        view = await stage.runtime.stream_state(ADA, started.stream_id)
        assert view.status is StreamStatus.CANCELLED
        assert await stage.said() == [("user", "Hello"), ("assistant", "The xylograph is")]


class Deciding(OutputOnly):
    """Lets everything pass, the last word only when it is let go."""

    def __init__(self) -> None:
        super().__init__(says(ALLOW), "g")
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def evaluate_output(self, context: GuardContext, chunk: OutputChunk, sources: Sources) -> Evaluation | None:
        self.begun.set()
        await self.go.wait()
        return await super().evaluate_output(context, chunk, sources)


@pytest.mark.parametrize("mode", ["hold", "sentence"])
async def test_held_text_of_a_cancelled_turn_goes_out_once_it_has_passed(shared_database: str, mode: Any) -> None:
    async with running_stage(shared_database, guards=Guards([OutputOnly(says(ALLOW), "g")], mode=mode)) as stage:
        async with writing(stage, Hold()) as started:
            assert "xylo" not in str(stage.runtime._services.rings.find(started.stream_id)._frames)  # type: ignore[union-attr]
            await stage.runtime.cancel(ADA, started.stream_id)
            await closed(stage, started.stream_id)
        again = await replay(stage, started.stream_id)
        assert '"final_response_text":"The xylograph is"' in again
        assert "text_delta" in again


async def test_text_of_a_failed_turn_stays_in_the_log_only_if_it_passes(shared_database: str) -> None:
    for rule, gone in ((blocks(WORD), True), (says(ALLOW), False)):
        async with running_stage(shared_database, guards=Guards([OutputOnly(rule, "g")])) as stage:
            stage.provider.add(["The xylograph is", failure("overloaded", "scripted", "It is full.")])
            chunks = await stage.play("Hello", conversation=f"chat-{gone}")
            assert [chunk["type"] for chunk in chunks][-1] == "final_response"
            assert chunks[-1]["error"]["code"] == "LLM_PROVIDER_ERROR"
            again = await replay(stage, chunks[-1]["stream_id"])
            assert (WORD not in again) == gone


async def test_a_block_that_can_not_be_stored_leaves_no_text_either(database: str) -> None:
    """The turn fails then, and its failure is stored; what it had said is judged once more."""
    tells_of_the_block = "position('NOT_THAT'::bytea in NEW.frames) > 0"
    await execute(database, BROKEN.format(code="P0001", what="INSERT ON stream_events", when=tells_of_the_block))
    async with running_stage(database, guards=Guards([OutputOnly(blocks(WORD), "g")])) as stage:
        async with writing(stage, Hold()) as started:
            assert WORD[:4] in await stored(database)
        await closed(stage, started.stream_id)
        view = await stage.runtime.stream_state(ADA, started.stream_id)
        assert (view.error or {})["code"] == "SYS_INTERNAL_SERVER_ERROR"
        assert WORD[:4] not in await stored(database)


async def stored(database: str) -> str:
    """Give all frames that are stored."""
    return "".join(row["frames"].decode() for row in await rows(database, "SELECT frames FROM stream_events"))


async def test_more_text_than_was_judged_is_judged_again(shared_database: str) -> None:
    guards = Guards([OutputOnly(says(ALLOW), "g")])
    async with running_stage(shared_database, guards=guards) as stage, writing(stage, Hold()):
        services = stage.runtime._services
        [row] = await rows(shared_database, "SELECT id, running_operation FROM conversations")
        judged = await judged_partial(services, row["id"], row["running_operation"])
        assert judged is not None
        assert judged.of("The xylograph is") == "The xylograph is"
        with pytest.raises(UnjudgedError):
            judged.of("The xylograph is old")


@pytest.mark.parametrize("why", ["it does not answer", "a required guard is missing"])
async def test_a_takeover_that_gets_no_verdict_keeps_no_text(
    shared_database: str, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    def missing(*_: Any) -> None:
        raise GuardrailMissingError

    guards = Guards([Hanging(says(ALLOW), "g")])
    async with running_stage(shared_database) as first, writing(first, Hold()):
        async with running_stage(shared_database, guards=guards) as second:
            if why == "it does not answer":
                monkeypatch.setattr("app.turn.orchestrator.partial.JUDGING_SECONDS", 0.05)
            else:
                monkeypatch.setattr(guards, "active", missing)
            [row] = await rows(shared_database, "SELECT id, running_operation FROM conversations")
            judged = await judged_partial(second.runtime._services, row["id"], row["running_operation"])
        assert judged is not None
        assert judged.of("The xylograph is") == ""


async def test_readers_who_come_after_the_verdict_find_the_same_ids_without_the_text(shared_database: str) -> None:
    async with running_stage(shared_database, guards=Guards([OutputOnly(blocks(WORD), "g")])) as stage:
        stage.provider.add(["The xylo", "graph"])
        started = await stage.runtime.start_turn(turn_input("Hello"))
        live = b"".join([piece async for piece in await stage.runtime.open_operation(started)]).decode()
        again = await replay(stage, started.stream_id)
        assert ids(again) == ids(live)
        assert again.count('"text_delta":"","redacted":true') == 2
        assert started.conversation_id == CHAT


def ids(frames: str) -> list[str]:
    return [line for line in frames.splitlines() if line.startswith("id: ")]


async def test_a_reader_who_is_behind_at_the_verdict_does_not_get_the_text_any_more(shared_database: str) -> None:
    hold = Hold()
    async with running_stage(shared_database, guards=Guards([OutputOnly(blocks(WORD), "g")])) as stage:
        stage.provider.add([hold, "The xylo", "graph"])
        started = await stage.runtime.start_turn(turn_input("Hello"))
        reader = await stage.runtime.open_operation(started)
        before = await anext(reader)
        await asyncio.wait_for(hold.reached.wait(), 20)
        hold.release()
        await closed(stage, started.stream_id)
        rest = b"".join([piece async for piece in reader]).decode()
        assert b"system_progress" in before
        assert "xylo" not in rest
        assert rest.count('"redacted":true') == 2


async def test_what_is_told_in_place_of_a_text_before_a_request_stays_in_the_log(shared_database: str) -> None:
    guard = OutputOnly(replaces(WORD, "picture"), "g", GuardConfig(can_sanitize=True))
    async with running_stage(shared_database, guards=Guards([guard])) as stage:
        stage.provider.add(["The xylo", "graph is", call(WEATHER.name, {"city": "Rome"}, id="c1")])
        chunks = await stage.play("Hello", tools=[WEATHER])
        assert [chunk["text_delta"] for chunk in chunks if chunk["type"] == "text_delta"][-1] == CLEAN
        again = await replay(stage, chunks[-1]["stream_id"])
        assert f'"text_delta":"{CLEAN}"' in again
        assert again.count('"redacted":true') == 2
        # Neither the pause nor its snapshot nor the request has what the model wrote.
        assert places(await readable(stage, [chunks[-1]["stream_id"]]), WORD, "xylo") == []
