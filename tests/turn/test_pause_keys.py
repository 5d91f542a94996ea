"""Idempotency keys: the same request again attaches to what it started; another one under its key is refused."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from app.domain.errors import ConversationBusyError, InvalidStateError, KeyReusedError, NotFoundError
from app.domain.turn import Caller, Pause, ResultsInput, TurnInput
from app.domain.views import Cursor, Started
from app.guardrails.base import Evaluation, GuardContext
from app.guardrails.registry import Guards
from app.providers.scripted import Hold
from tests.databases import rows
from tests.guardrails.acting import ALLOW, InputOnly, says
from tests.requirements import requirement
from tests.stage import ADA, CHAT, WEATHER, Stage, result, running_stage, turn_input
from tests.turn.pausing import by_results, codes, paused, scripted, tables, until, waiting

Post = Callable[[Stage], Awaitable[Any]]
KINDS = pytest.mark.parametrize("kind", ["turn", "results", "resume"])


def turn(text: str = "Hi.", **more: Any) -> TurnInput:
    return turn_input(text, **{"idempotency_key": "key-1", **more})


async def request_of(stage: Stage, kind: str) -> TurnInput | ResultsInput:
    """Make a request with a key; one that continues something has a pause to continue."""
    if kind == "turn":
        return turn(tools=[WEATHER])
    pause = await paused(stage, "c1", "c2")
    # As clients send it: without the tools' names, which the pause knows.
    given = ResultsInput(ADA, (result("c1", name=""), result("c2", name="")), idempotency_key="key-1")
    if kind == "results":
        return replace(given, stream_id=pause.stream_id)
    return replace(given, conversation_id=CHAT, pause_id=pause.pause_id)


async def post(stage: Stage, request: TurnInput | ResultsInput) -> Started:
    """Send a request and give what was started, or attached to."""
    if isinstance(request, TurnInput):
        return await stage.runtime.start_turn(request)
    sent = stage.runtime.pass_results if request.stream_id else stage.runtime.resume
    started = await sent(request)
    assert isinstance(started, Started)
    return started


async def read(stage: Stage, started: Started, after: Cursor | None = None) -> bytes:
    """Give the bytes of an operation to its end."""
    frames = b""
    async with asyncio.timeout(30):
        async for piece in await stage.runtime.open_operation(started, after):
            frames += b"" if piece.startswith(b":") else piece
    return frames


def changed(request: TurnInput | ResultsInput) -> TurnInput | ResultsInput:
    """Give a request that means something else."""
    if isinstance(request, TurnInput):
        return replace(request, input="Another thing.")
    return replace(request, results=(result("c1", "another"), *request.results[1:]))


@requirement("R73", "R85", "R86")
@KINDS
async def test_the_same_request_again_is_given_the_same_frames_and_asks_no_model(stage: Stage, kind: str) -> None:
    request = await request_of(stage, kind)
    asked = len(stage.provider.requests)
    stage.provider.add("Mild.")
    first = await post(stage, request)
    frames = await read(stage, first)
    again = await post(stage, request)

    assert (again.replayed, replace(again, replayed=False)) == (True, first)
    assert await read(stage, again) == frames
    assert frames.count(b"event: end\n") == 1
    third = frames.split(b"\n\n")[2] + b"\n\n"
    assert await read(stage, again, Cursor(first.fence, 2)) == frames[frames.index(third) :]
    assert len(stage.provider.requests) == asked + 1


@KINDS
async def test_another_request_under_the_key_is_refused_and_changes_nothing(stage: Stage, kind: str) -> None:
    request = await request_of(stage, kind)
    stage.provider.add("Mild.")
    first = await post(stage, request)
    await read(stage, first)
    before = await tables(stage.database)

    with pytest.raises(KeyReusedError) as refused:
        await post(stage, changed(request))
    assert refused.value.details["stream_id"] == first.stream_id
    assert await tables(stage.database) == before


@KINDS
async def test_twenty_at_once_on_two_processes_start_one_operation(shared_database: str, kind: str) -> None:
    hold = Hold()
    async with scripted(shared_database) as one, scripted(shared_database) as two:
        request = await request_of(one, kind)
        asked = len(one.provider.requests)
        one.provider.add([hold, "Mild."])
        two.provider.add([hold, "Mild."])
        stages = [one, two] * 10
        posts = asyncio.gather(*(post(stage, request) for stage in stages))
        async with asyncio.timeout(20):
            started = await posts
            readers = asyncio.gather(*(read(*pair) for pair in zip(stages, started, strict=True)))
            await hold.reached.wait()
            hold.release()
            frames = await readers

        assert [entry.replayed for entry in started].count(False) == 1
        assert len({replace(entry, replayed=True) for entry in started}) == 1
        assert len(set(frames)) == 1
        assert len(one.provider.requests) + len(two.provider.requests) == asked + 1


class First(InputOnly):
    """Judges the first input only when it is let go."""

    def __init__(self) -> None:
        super().__init__(says(ALLOW))
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def evaluate_input(self, context: GuardContext, turn: TurnInput) -> Evaluation | None:
        if not self.begun.is_set():
            self.begun.set()
            await self.go.wait()
        return await super().evaluate_input(context, turn)


@pytest.mark.parametrize(
    ("on_busy", "is_over"), [("reject", True), ("wait", False), ("interrupt", False), ("rollback", False)]
)
async def test_a_request_whose_twin_is_accepted_while_it_is_prepared_attaches_to_that_and_ends_it_not(
    shared_database: str,
    on_busy: str,
    is_over: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    guard, hold = First(), Hold()
    async with running_stage(shared_database, guards=Guards([guard])) as stage:
        late = asyncio.create_task(stage.runtime.start_turn(turn(on_busy=on_busy)))
        await asyncio.wait_for(guard.begun.wait(), 20)
        stage.provider.add([hold, "Mild."])
        first = await stage.runtime.start_turn(turn(on_busy=on_busy))
        await asyncio.wait_for(hold.reached.wait(), 20)
        if is_over:
            hold.release()
            await read(stage, first)
        guard.go.set()
        assert await asyncio.wait_for(late, 20) == replace(first, replayed=True)
        hold.release()
        assert b"Mild." in await read(stage, first)
        assert await stage.said() == [("user", "Hi."), ("assistant", "Mild.")]


async def test_of_two_that_wait_under_one_key_one_runs(stage: Stage) -> None:
    hold = Hold()
    stage.provider.add([hold, "First."], "Mild.")
    before = await stage.runtime.start_turn(turn_input("Before."))
    await asyncio.wait_for(hold.reached.wait(), 20)
    posts = []
    for count in (1, 2):
        posts.append(asyncio.create_task(stage.runtime.start_turn(turn(on_busy="wait"))))

        async def wait(count: int = count) -> bool:
            return await waiting(stage) == count

        await until(wait)
    hold.release()
    await read(stage, before)
    started = await asyncio.wait_for(asyncio.gather(*posts), 20)
    assert sorted(entry.replayed for entry in started) == [False, True]
    assert len({replace(entry, replayed=True) for entry in started}) == 1


@KINDS
async def test_after_a_restart_the_same_request_is_still_known(shared_database: str, kind: str) -> None:
    async with scripted(shared_database) as stage:
        request = await request_of(stage, kind)
        stage.provider.add("Mild.")
        first = await post(stage, request)
        frames = await read(stage, first)
    async with scripted(shared_database) as stage:
        again = await post(stage, request)
        assert again == replace(first, replayed=True)
        assert await read(stage, again) == frames
        with pytest.raises(KeyReusedError):
            await post(stage, changed(request))
        assert stage.provider.requests == []


async def test_a_refused_request_holds_no_key(stage: Stage) -> None:
    hold = Hold()
    stage.provider.add([hold, "First."], "Second.")
    running = await stage.runtime.start_turn(turn_input("One."))
    with pytest.raises(ConversationBusyError):
        await stage.runtime.start_turn(turn())
    hold.release()
    await read(stage, running)

    accepted = await stage.runtime.start_turn(turn("Something else under the same key."))
    assert not accepted.replayed
    assert b"Second." in await read(stage, accepted)


@pytest.mark.parametrize("kind", ["results", "resume"])
async def test_refused_results_hold_no_key(stage: Stage, kind: str) -> None:
    request = await request_of(stage, kind)
    assert isinstance(request, ResultsInput)
    with pytest.raises(InvalidStateError):
        await post(stage, replace(request, results=(result("c9"),)))
    stage.provider.add("Mild.")
    assert not (await post(stage, request)).replayed


async def test_a_key_names_a_request_of_one_kind_conversation_user_and_organization(stage: Stage) -> None:
    stage.provider.add("A.", "B.", "C.", "D.")
    requests = [
        turn(),
        turn(conversation="chat-2"),
        turn(conversation="chat-3", caller=Caller("eve")),
        turn(caller=Caller("ada", "acme")),
    ]
    started = [await stage.runtime.start_turn(request) for request in requests]
    assert [entry.replayed for entry in started] == [False] * 4
    assert len({entry.stream_id for entry in started}) == 4
    for entry in started:
        await read(stage, entry)

    pause: Pause = await paused(stage, "c1")
    stage.provider.add("E.")
    given = ResultsInput(ADA, (result("c1"),), stream_id=pause.stream_id, idempotency_key="key-1")
    assert not (await post(stage, given)).replayed


async def test_a_key_on_anothers_conversation_tells_nothing_of_what_it_named(stage: Stage) -> None:
    stage.provider.add("A.")
    mine = await stage.runtime.start_turn(turn())
    await read(stage, mine)
    for request in (turn(), turn("Something else.")):
        with pytest.raises(NotFoundError) as refused:
            await stage.runtime.start_turn(replace(request, caller=Caller("eve")))
        assert mine.stream_id not in f"{refused.value.message} {refused.value.details}"


async def test_a_key_that_was_used_for_partial_results_is_free_until_they_are_complete(stage: Stage) -> None:
    request = await request_of(stage, "results")
    assert isinstance(request, ResultsInput)
    half = replace(request, results=request.results[:1], partial=True)
    first, again = await stage.runtime.pass_results(half), await stage.runtime.pass_results(half)
    assert first == again

    stage.provider.add("Mild.")
    done = await post(stage, replace(request, results=request.results[1:], partial=True))
    await read(stage, done)
    assert (await post(stage, replace(request, results=request.results[1:], partial=True))).replayed


async def test_without_the_key_accepted_results_are_refused_the_second_time(stage: Stage) -> None:
    pause = await paused(stage, "c1")
    stage.provider.add("Mild.")
    await by_results(stage, pause, result("c1"))
    assert codes(await by_results(stage, pause, result("c1"))) == ["TOOL_ERROR"]
    assert await stage.pending() is None


@KINDS
async def test_an_operation_that_was_run_again_elsewhere_is_replayed_from_where_it_began(
    shared_database: str, kind: str
) -> None:
    hold = Hold()
    async with scripted(shared_database) as other:
        async with scripted(shared_database) as stage:
            request = await request_of(stage, kind)
            stage.provider.add([hold])
            other.provider.add("Mild.")
            first = await post(stage, request)
            await hold.reached.wait()

        # That process has gone and handed over; nothing but the operation's first frames was seen of it.
        async def runs_again() -> bool:
            return bool(await rows(shared_database, "SELECT 1 FROM inbound_messages WHERE attempt > 1"))

        before = await post(other, request)
        await until(runs_again)
        async with asyncio.timeout(30):
            again = await post(other, request)
            frames = await read(other, again)

        assert before == again == replace(first, replayed=True)
        own = [frame for frame in frames.split(b"\n\n") if frame]
        assert own[0].startswith(b"id: %d-1\n" % first.fence)
        assert b"Mild." in frames
        assert frames.count(b"event: end\n") == 1
        # What it had said when it was accepted is not said again.
        said = [frames.count(b"PERSONA_READY"), frames.count(b"event: tool_result_emission\n")]
        assert said == ([1, 0] if kind == "turn" else [0, 2])
        rest = await read(other, again, Cursor(first.fence, 1))
        assert rest == b"".join(frame + b"\n\n" for frame in own[1:])
