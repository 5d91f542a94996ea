"""Any history of turns, results, cancels, crashes and failing saves, on two runtimes, against a model of a page.

After each step: at most one pause is held and one operation runs; what is stored and what a model was told is what the
reference model says; no call is left unanswered, and none is answered twice; every ended operation said so.
"""

import asyncio
import functools
from collections.abc import Coroutine
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from app.domain.tools import ToolResult
from app.domain.turn import ResultsInput
from app.domain.views import PartialResults, Started
from app.providers.scripted import Hold
from tests.databases import Databases
from tests.pause_machine.model import SO_FAR, After, Busy, Held, Model
from tests.pause_machine.world import Plan, World, termed
from tests.stage import ADA, WEATHER, turn_input, violations

T = TypeVar("T")
NUMBERS = count(1)
REPLICAS = st.sampled_from([0, 1])
AFTER = st.sampled_from(["ask two", "ask", "reply", "ask two", "ask two", "fail", "forbidden", "forbidden ask"])
EXPIRY = st.sampled_from(["close", "continue"])
WAYS = st.sampled_from(["results", "resume"])


class PauseMachine(RuleBasedStateMachine):
    """`world` is the real thing and `model` what it must be like."""

    def __init__(self, world: World, runner: asyncio.Runner) -> None:
        super().__init__()
        self.world, self._runner = world, runner
        self.model = Model()
        world.conversation = f"chat-{next(NUMBERS)}"
        world.plans.clear()
        self.hold = Hold()
        self.checked = len(world.provider.requests)
        self.last: tuple[Any, Started] | None = None
        self.told: list[tuple[str, Any]] | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(20):
                return await coroutine

        return self._runner.run(bounded())

    def teardown(self) -> None:
        self.hold.release()
        self.run(self.world.refusing(None))
        if self.model.busy is not None:
            self.run(self.world.until_idle())
        assert self.world.surprises == []

    # Helpers ----------------------------------------------------------------------------------------------------

    def plan(self, after: After, *, hold: Hold | None = None, spoken: bool = False) -> Plan:
        number = {"ask": 1, "ask two": 2, "forbidden ask": 1}.get(after, 0)
        made = Plan(after, [f"call-{next(NUMBERS)}" for _ in range(number)], hold, spoken)
        self.world.plans.append(made)
        return made

    async def read(self, started: Started, replica: int) -> None:
        """Read an operation to its end."""
        async for _ in await self.world.runtimes[replica].open_operation(started):
            pass

    async def pause_of(self, turn: int, stream_id: str, on_expiry: str) -> Held | None:
        """Give the pause that is held now, as the real thing has it."""
        rows = await self.world.rows(
            "SELECT pause_id, stream_id, tool_calls FROM pending_external_tool_requests"
            " WHERE conversation = $1 AND state = 'held'"
        )
        if not rows:
            return None
        assert rows[0]["stream_id"] == stream_id
        pending = await self.world.host(0).get_pending_external_tool_request(ADA, self.world.conversation)
        assert pending is not None
        calls = tuple(one["id"] for one in pending.tool_calls)
        return Held(pending.pause_id, stream_id, turn, calls, on_expiry)

    async def finished(self, stream_id: str, turn: int, plan: Plan, on_expiry: str, *, spoken: bool = False) -> None:
        """Say to the model that an operation has ended as planned."""
        text = (SO_FAR if spoken else "") + ("Done." if plan.after == "reply" else "")
        pause = await self.pause_of(turn, stream_id, on_expiry)
        self.model.finish(stream_id, turn, plan.after, text, pause)
        if pause is not None:
            assert list(pause.calls) == list(plan.calls)

    def turn(self, on_expiry: str, **more: Any) -> Any:
        text = f"u{next(NUMBERS)}"
        return turn_input(
            text,
            conversation=self.world.conversation,
            tools=[WEATHER],
            pause_ttl_seconds=3600,
            on_expiry=on_expiry,
            idempotency_key=f"key-{text}",
            **more,
        )

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

    # After each step --------------------------------------------------------------------------------------------

    @invariant()
    def the_real_thing_is_as_the_model_says(self) -> None:
        self.run(self._check())

    async def _check(self) -> None:
        world, model = self.world, self.model
        assert await world.stored() == [(said.role, said.what) for said in model.messages]
        pauses = await world.rows(
            "SELECT pause_id, state, tool_calls, results FROM pending_external_tool_requests WHERE conversation = $1"
        )
        held = [row["pause_id"] for row in pauses if row["state"] == "held"]
        assert held == ([model.held.pause_id] if model.held else [])
        assert sum(row["state"] == "recorded" for row in pauses) <= (1 if model.busy else 0)
        streams = {
            row["stream_id"]: row["status"]
            for row in await world.rows("SELECT stream_id, status FROM streams WHERE conversation = $1")
        }
        assert streams == model.streams
        running = await world.rows("SELECT running_stream FROM conversations WHERE id = $1")
        assert [row["running_stream"] for row in running] in ([], [model.busy.stream_id if model.busy else None])
        self._check_answers()
        await self._check_ends(streams)
        self._check_requests()

    def _check_answers(self) -> None:
        """No call of a pause that is over is unanswered, and none is answered twice."""
        asked = [call for said in self.model.messages if said.role == "assistant" for call in said.what[1]]
        answered = [said.what[0] for said in self.model.messages if said.role == "tool"]
        waiting = self.model.held.calls if self.model.held else ()
        assert sorted(asked) == sorted([*answered, *waiting])

    async def _check_ends(self, streams: dict[str, str]) -> None:
        """Each operation that is over said so in its last frame, and nothing is announced that is not stored."""
        for stream_id, status in streams.items():
            rows = await self.world.watch.fetch(
                "SELECT fence, frames FROM stream_events WHERE conversation = $1 AND stream_id = $2"
                " ORDER BY fence, first_n",
                self.world.key,
                stream_id,
            )
            text = b"".join(row["frames"] for row in rows)
            if status != "running":
                last = text.rstrip(b"\n").rsplit(b"\n\n", 1)[-1]
                assert b"event: end\n" in last
                assert b'"status":"%s"' % status.encode() in last

    def _check_requests(self) -> None:
        """What models were told is valid, and all that was stored when the newest operation was accepted."""
        new = self.world.provider.requests[self.checked :]
        self.checked += len(new)
        assert [violations(request) for request in new if violations(request)] == []
        assert self.world.surprises == []
        if new and self.told is not None:
            assert [termed(message) for message in new[-1].messages[1:]] == self.told
            self.told = None


def drive(databases: Databases, *, examples: int, steps: int, derandomize: bool) -> None:
    """Run the machine on a database of its own."""
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
