"""What the rules of the machine stand on: the real thing, the model, and what is compared after each step."""

import asyncio
from collections.abc import Coroutine
from itertools import count
from typing import Any, TypeVar

from hypothesis.stateful import RuleBasedStateMachine, invariant

from app.domain.views import Started
from app.providers.scripted import Hold
from tests.pause_machine.model import SO_FAR, After, Held, Model
from tests.pause_machine.world import Plan, World, termed
from tests.stage import ADA, WEATHER, turn_input, violations

T = TypeVar("T")
NUMBERS = count(1)


class Compared(RuleBasedStateMachine):
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

    # After each step --------------------------------------------------------------------------------------------

    @invariant()
    def the_real_thing_is_as_the_model_says(self) -> None:
        self.run(self._check())

    async def _check(self) -> None:
        world, model = self.world, self.model
        stored, expected = await world.stored(), [(said.role, said.what) for said in model.messages]
        assert stored == expected, f"{world.conversation} has {stored} and not {expected}"
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
