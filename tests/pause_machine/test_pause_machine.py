"""Any history of turns, results, cancels, crashes and failing saves, on two runtimes, against a model of a page.

After each step: at most one pause is held and one operation runs; what is stored and what a model was told is what the
reference model says; no call is left unanswered, and none is answered twice; every ended operation said so.
"""

import asyncio
import functools
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from app.domain.tools import ToolResult
from app.domain.turn import ResultsInput
from app.domain.views import PartialResults, Started
from app.providers.scripted import Hold
from tests.databases import Databases
from tests.pause_machine.compared import NUMBERS, Compared
from tests.pause_machine.model import SO_FAR, After, Busy, Held
from tests.pause_machine.world import World
from tests.stage import ADA

pytestmark = pytest.mark.slow

REPLICAS = st.sampled_from([0, 1])
AFTER = st.sampled_from(["ask two", "ask", "reply", "ask two", "ask two", "fail", "forbidden", "forbidden ask"])
EXPIRY = st.sampled_from(["close", "continue"])
WAYS = st.sampled_from(["results", "resume"])


class PauseMachine(Compared):
    """Everything that may happen to a conversation."""

    # Turns ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.busy is None)
    @rule(replica=REPLICAS, after=st.sampled_from(["ask two", "ask"]), on_expiry=EXPIRY)
    def a_turn_that_stops(self, replica: int, after: After, on_expiry: str) -> None:
        self.run_turn(replica, after, on_expiry)

    @precondition(lambda self: self.model.busy is None)
    @rule(replica=REPLICAS, after=st.sampled_from(["reply", "fail", "forbidden", "forbidden ask"]), on_expiry=EXPIRY)
    def a_turn_that_ends(self, replica: int, after: After, on_expiry: str) -> None:
        self.run_turn(replica, after, on_expiry)

    def run_turn(self, replica: int, after: After, on_expiry: str) -> None:
        async def go() -> None:
            given, plan = self.turn(on_expiry), self.plan(after)
            started = await self.world.runtimes[replica].start_turn(given)
            turn = self.model.begin_turn(given.input)
            self.told = self.model.told()
            await self.read(started, 1 - replica)
            await self.finished(started.stream_id, turn, plan, on_expiry)
            self.last = (given, started)

        self.run(go())

    @precondition(lambda self: self.model.busy is None)
    @rule(replica=REPLICAS, after=AFTER, on_expiry=EXPIRY, spoken=st.booleans())
    def a_turn_that_takes_its_time(self, *, replica: int, after: After, on_expiry: str, spoken: bool) -> None:
        async def go() -> None:
            self.hold = Hold()
            given = self.turn(on_expiry)
            self.plan(after, hold=self.hold, spoken=spoken)
            started = await self.world.runtimes[replica].start_turn(given)
            turn = self.model.begin_turn(given.input)
            self.told = self.model.told()
            await self.hold.reached.wait()
            self.model.busy = Busy(started.stream_id, turn, after, on_expiry, spoken, replica)
            self.model.streams[started.stream_id] = "running"

        self.run(go())

    @precondition(lambda self: self.model.busy is not None)
    @rule()
    def what_runs_ends(self) -> None:
        async def go() -> None:
            busy = self.model.busy
            assert busy is not None
            self.hold.release()
            await self.world.until_idle()
            self.model.busy = None
            pause = await self.pause_of(busy.turn, busy.stream_id, busy.on_expiry)
            text = (SO_FAR if busy.spoken else "") + ("Done." if busy.after == "reply" else "")
            self.model.finish(busy.stream_id, busy.turn, busy.after, text, pause)

        self.run(go())

    @precondition(lambda self: self.model.busy is not None)
    @rule(replica=REPLICAS)
    def a_turn_is_refused_while_something_runs(self, replica: int) -> None:
        given = self.turn("close")
        assert self.run(self.world.refused(self.world.runtimes[replica].start_turn(given))) == "CONVERSATION_BUSY"

    @precondition(lambda self: self.model.busy is not None)
    @rule(replica=REPLICAS, after=AFTER, on_expiry=EXPIRY, back=st.booleans())
    def a_turn_makes_its_way(self, *, replica: int, after: After, on_expiry: str, back: bool) -> None:
        async def go() -> None:
            given, plan = self.turn(on_expiry, on_busy="rollback" if back else "interrupt"), self.plan(after)
            started = await self.world.runtimes[replica].start_turn(given)
            gone = self.model.cut("cancelled")
            if back:
                self.model.take_back(gone.turn)
            turn = self.model.begin_turn(given.input)
            self.told = self.model.told()
            await self.read(started, replica)
            await self.finished(started.stream_id, turn, plan, on_expiry)

        self.run(go())

    @precondition(lambda self: self.model.held is not None)
    @rule(replica=REPLICAS)
    def a_turn_that_minds_the_pause_is_refused(self, replica: int) -> None:
        given = self.turn("close", on_pause="reject")
        assert self.run(self.world.refused(self.world.runtimes[replica].start_turn(given))) == "PAUSE_HELD"

    # Results ----------------------------------------------------------------------------------------------------

    def results(self, way: str, pause: Held, given: dict[str, str], *, partial: bool = False) -> ResultsInput:
        results = tuple(ToolResult(call, "", text) for call, text in given.items())
        key = f"key-{next(NUMBERS)}"
        made = ResultsInput(ADA, results, pause_id=pause.pause_id, partial=partial, idempotency_key=key)
        if way == "results":
            return replace(made, stream_id=pause.stream_id)
        return replace(made, conversation_id=self.world.conversation)

    def post(self, replica: int, given: ResultsInput) -> Coroutine[Any, Any, Started | PartialResults]:
        runtime = self.world.runtimes[replica]
        return runtime.pass_results(given) if given.stream_id else runtime.resume(given)

    @precondition(lambda self: self.model.held is not None)
    @rule(replica=REPLICAS, way=WAYS, after=AFTER)
    def results_for_every_call(self, replica: int, way: str, after: After) -> None:
        self.pass_some(replica, way, after, set())

    @precondition(lambda self: self.model.held is not None)
    @rule(replica=REPLICAS, way=WAYS, after=AFTER, skipped=st.integers(0, 1))
    def results_that_leave_a_call_out(self, replica: int, way: str, after: After, skipped: int) -> None:
        self.pass_some(replica, way, after, {skipped})

    @precondition(lambda self: self.model.held is not None)
    @rule(replica=REPLICAS, way=WAYS, after=AFTER, skipped=st.integers(0, 1))
    def results_of_which_more_will_come(self, replica: int, way: str, after: After, skipped: int) -> None:
        self.pass_some(replica, way, after, {skipped}, partial=True)

    def pass_some(self, replica: int, way: str, after: After, skip: set[int], *, partial: bool = False) -> None:
        async def go() -> None:
            held = self.model.held
            assert held is not None
            chosen = [call for place, call in enumerate(held.calls) if place not in skip] or list(held.calls[:1])
            answers = {call: held.answers.get(call, f"result of {call}") for call in reversed(chosen)}
            request = self.results(way, held, answers, partial=partial)
            complete = {*held.answers, *answers} == set(held.calls)
            plan = self.plan(after) if complete or not partial else None
            started = await self.post(replica, request)
            if plan is None:
                assert isinstance(started, PartialResults)
                held.answers.update(answers)
                assert set(started.received) == set(held.answers)
                return
            assert isinstance(started, Started)
            self.model.take(answers, started.stream_id if way == "resume" else None)
            self.told = self.model.told()
            await self.read(started, 1 - replica)
            await self.finished(started.stream_id, held.turn, plan, held.on_expiry)
            self.last = (request, started)

        self.run(go())

    @precondition(lambda self: self.model.held is not None)
    @rule(replica=REPLICAS, way=WAYS, after=AFTER, spoken=st.booleans())
    def results_whose_continuation_takes_its_time(self, *, replica: int, way: str, after: After, spoken: bool) -> None:
        async def go() -> None:
            held = self.model.held
            assert held is not None
            self.hold = Hold()
            answers = {call: held.answers.get(call, f"result of {call}") for call in held.calls[:1]}
            self.plan(after, hold=self.hold, spoken=spoken)
            started = await self.post(replica, self.results(way, held, answers))
            assert isinstance(started, Started)
            self.model.take(answers, started.stream_id if way == "resume" else None)
            self.told = self.model.told()
            await self.hold.reached.wait()
            self.model.busy = Busy(started.stream_id, held.turn, after, held.on_expiry, spoken, replica)
            self.model.streams[started.stream_id] = "running"

        self.run(go())

    @precondition(lambda self: self.model.held is not None)
    @rule(replica=REPLICAS, way=WAYS, partial=st.booleans())
    def results_that_do_not_fit(self, *, replica: int, way: str, partial: bool) -> None:
        held = self.model.held
        assert held is not None
        wrong = [{held.calls[0]: held.answers.get(held.calls[0], "fine"), "call-0": "of nobody"}]
        wrong += [{call: "another answer"} for call in held.answers]
        for given in wrong:
            posted = self.post(replica, self.results(way, held, given, partial=partial))
            assert self.run(self.world.refused(posted)) == "SYS_INVALID_STATE"

    @precondition(lambda self: any(pause is not self.model.held for pause in self.model.past))
    @rule(replica=REPLICAS, way=WAYS, data=st.data())
    def results_that_come_too_late(self, replica: int, way: str, data: Any) -> None:
        late = data.draw(st.sampled_from([pause for pause in self.model.past if pause is not self.model.held]))
        posted = self.post(replica, self.results(way, late, dict.fromkeys(late.calls, "late")))
        open_still = self.model.streams[late.stream_id] in {"paused", "running"}
        expected = "SYS_INVALID_STATE" if way == "resume" or open_still else "TOOL_ERROR"
        assert self.run(self.world.refused(posted)) == expected

    @precondition(lambda self: self.last is not None and bool(self.model.held or self.model.busy))
    @rule(replica=REPLICAS)
    def the_last_request_comes_again(self, replica: int) -> None:
        async def go() -> None:
            assert self.last is not None
            request, started = self.last
            runtime = self.world.runtimes[replica]
            sent = self.post(replica, request) if isinstance(request, ResultsInput) else runtime.start_turn(request)
            again = await sent
            assert isinstance(again, Started)
            assert again.replayed
            assert (again.stream_id, again.fence) == (started.stream_id, started.fence)

        self.run(go())

    # Ends from outside ------------------------------------------------------------------------------------------

    @precondition(lambda self: bool(self.model.held or self.model.busy))
    @rule(replica=REPLICAS, data=st.data())
    def a_cancel(self, replica: int, data: Any) -> None:
        async def go() -> None:
            stream_id = data.draw(st.sampled_from(list(self.model.streams)[-2:]))
            before = self.model.streams[stream_id]
            told = await self.world.runtimes[replica].cancel(ADA, stream_id)
            if before == "running":
                assert told == "cancelling"
                await self.world.until_idle()
                self.model.cut("cancelled")
            elif before == "paused":
                assert told == "cancelled"
                self.model.end_pause()
            else:
                assert told == "already_ended"

        self.run(go())

    @precondition(lambda self: self.model.held is not None)
    @rule(after=AFTER)
    def the_pause_runs_out(self, after: After) -> None:
        async def go() -> None:
            held = self.model.held
            assert held is not None
            if held.on_expiry == "close":
                await self.world.expire()
                self.model.end_pause()
                return
            plan = self.plan(after)
            await self.world.expire()
            self.model.take({})
            self.told = self.model.told()
            await self.world.until_idle()
            await self.finished(held.stream_id, held.turn, plan, held.on_expiry)

        self.run(go())

    @precondition(lambda self: self.model.busy is not None)
    @rule(again=AFTER)
    def a_crash(self, again: After) -> None:
        async def go() -> None:
            busy = self.model.busy
            assert busy is not None
            plan = None if busy.spoken else self.plan(again)
            await self.world.crash(busy.replica)
            await self.world.until_idle()
            if plan is None:
                self.model.cut("failed")
                return
            self.model.busy = None
            await self.finished(busy.stream_id, busy.turn, plan, busy.on_expiry)

        self.run(go())

    @precondition(lambda self: self.model.held is not None)
    @rule(replica=REPLICAS)
    def a_crash_while_a_pause_is_held(self, replica: int) -> None:
        self.run(self.world.crash(replica))

    # Saves that fail --------------------------------------------------------------------------------------------

    @precondition(lambda self: self.model.held is not None)
    @rule(replica=REPLICAS, way=st.sampled_from(["results", "resume", "turn"]))
    def an_acceptance_that_can_not_be_stored(self, replica: int, way: str) -> None:
        async def go() -> None:
            held = self.model.held
            await self.world.refusing("inbound_messages")
            if held is None or way == "turn":
                doing: Any = self.world.runtimes[replica].start_turn(self.turn("close"))
            else:
                answers = {call: held.answers.get(call, "fine") for call in held.calls}
                doing = self.post(replica, self.results(way, held, answers))
            assert await self.world.refused(doing) == "SYS_INTERNAL_SERVER_ERROR"
            await self.world.refusing(None)

        self.run(go())

    @precondition(lambda self: self.model.held is not None)
    @rule(replica=REPLICAS, way=st.sampled_from(["results", "resume", "turn"]))
    def a_pause_that_can_not_be_stored(self, replica: int, way: str) -> None:
        async def go() -> None:
            held = self.model.held
            await self.world.refusing("pending_external_tool_requests")
            self.plan("ask")
            if held is None or way == "turn":
                given = self.turn("close")
                started: Any = await self.world.runtimes[replica].start_turn(given)
                self.model.begin_turn(given.input)
                self.told = self.model.told()
            else:
                answers = {call: held.answers.get(call, "fine") for call in held.calls}
                started = await self.post(replica, self.results(way, held, answers))
                self.model.take(answers, started.stream_id if way == "resume" else None)
                self.told = self.model.told()
            await self.read(started, replica)
            await self.world.refusing(None)
            self.model.streams[started.stream_id] = "failed"

        self.run(go())


def drive(databases: Databases, *, examples: int, steps: int, derandomize: bool, sabotage: str | None = None) -> None:
    """Run the machine on a database of its own; `sabotage` is done to that before."""
    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=derandomize,
        print_blob=True,
        phases=[Phase.generate, Phase.shrink] if not derandomize else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        made = databases.fresh()
        world = World(runner.run(made.__aenter__()))
        runner.run(world.open())
        if sabotage is not None:
            runner.run(world.sabotage(sabotage))
        try:
            machine: Any = functools.partial(PauseMachine, world, runner)
            run_state_machine_as_test(machine, settings=profile)
        finally:
            runner.run(world.close())
            runner.run(made.__aexit__(None, None, None))


@pytest.mark.timeout(180)
def test_any_history_of_a_conversation_with_pauses_is_as_the_model_says(databases: Databases) -> None:
    drive(databases, examples=10, steps=20, derandomize=True)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_long_histories_are_as_the_model_says(databases: Databases) -> None:
    drive(databases, examples=150, steps=50, derandomize=False)
