"""Input guards on whole turns: what they refuse leaves no trace, what they change is what is kept."""

# ruff: noqa: ARG002 - what a guard is given is fixed, and not each one needs all of it

import asyncio
from typing import Any

import pytest

from app.domain.errors import GuardrailBlockedError, GuardrailMissingError
from app.domain.turn import TurnInput, TurnOptions
from app.guardrails.base import Action, Evaluation, GuardConfig
from app.guardrails.registry import Guards, OutputMode
from app.guardrails.terms import RequiredGuard
from app.providers.scripted import call
from tests.databases import rows
from tests.guardrails.acting import ALLOW, FLAG, Acting, Hanging, InputOnly, OutputOnly, blocks, replaces, says
from tests.guardrails.leaks import tables
from tests.requirements import requirement
from tests.stage import ADA, CHAT, WEATHER, Stage, result, running_stage, turn_input
from tests.turn.playing import Playing

TRACES = """
SELECT (SELECT count(*) FROM conversations) + (SELECT count(*) FROM messages) + (SELECT count(*) FROM streams)
    + (SELECT count(*) FROM inbound_messages) + (SELECT count(*) FROM stream_events)
"""
MODES: list[OutputMode] = ["stream", "hold", "sentence", "until_input_ok"]


async def traces(stage: Stage) -> int:
    [row] = await rows(stage.database, TRACES)
    return int(row[0])


@requirement("R3", "R14", "R20", "R306")
@pytest.mark.parametrize("mode", MODES)
async def test_a_blocked_input_leaves_no_trace_and_asks_no_model(shared_database: str, mode: OutputMode) -> None:
    playing = Playing()
    guards = Guards([Acting(blocks("bomb"), "g")], mode=mode)
    async with running_stage(shared_database, gmis=playing, guards=guards) as stage:
        [refusal] = await stage.play("How to make a bomb?")
        assert (refusal["type"], refusal["code"], refusal["message"]) == ("error", "NOT_THAT", "not that")
        assert refusal["is_final"] is True
        assert await traces(stage) == 0
        assert playing.asked == []
        if mode != "until_input_ok":
            assert playing.acquired == []
        assert "bomb" not in await tables(shared_database)


@requirement("R20")
async def test_a_blocked_input_leaves_the_pause_as_it_was(shared_database: str) -> None:
    async with running_stage(shared_database, guards=Guards([InputOnly(blocks("bomb"), "g")])) as stage:
        stage.provider.add([call(WEATHER.name, {"city": "Berlin"}, id="c1")], "It is warm.")
        chunks = await stage.play("Weather?", tools=[WEATHER])
        before = await stage.pending()
        assert (await stage.play("A bomb"))[0]["code"] == "NOT_THAT"
        assert await stage.pending() == before
        assert (await stage.pass_results(chunks[-1]["stream_id"], result("c1")))[-1]["type"] == "final_response"


@pytest.mark.parametrize("mode", MODES)
async def test_a_changed_input_is_what_is_stored_told_and_run_again(shared_database: str, mode: OutputMode) -> None:
    guard = InputOnly(replaces("4111 1111 1111 1111", "[card]"), "g", GuardConfig(can_sanitize=True))
    async with running_stage(shared_database, guards=Guards([guard], mode=mode)) as stage:
        stage.provider.add("Fine.")
        await stage.play("My card is 4111 1111 1111 1111")
        assert (await stage.said())[0] == ("user", "My card is [card]")
        assert "4111" not in await tables(shared_database)
        assert stage.provider.requests[0].messages[-1].content == "My card is [card]"


@pytest.mark.parametrize("mode", ["stream", "until_input_ok"])
async def test_a_guard_that_leaves_nothing_of_the_input_makes_it_be_refused(
    shared_database: str, mode: OutputMode
) -> None:
    empties = InputOnly(says(Evaluation(Action.SANITIZE, modified_text=" ")), "g", GuardConfig(can_sanitize=True))
    async with running_stage(shared_database, guards=Guards([empties], mode=mode)) as stage:
        assert (await stage.play("Hello"))[0]["code"] == "SYS_VALIDATION_ERROR"
        assert await traces(stage) == 0


@pytest.mark.parametrize("mode", MODES)
async def test_the_first_chunk_alone_shows_what_the_guards_said_of_the_input(
    shared_database: str, mode: OutputMode
) -> None:
    guards = Guards([InputOnly(says(FLAG), "f"), InputOnly(says(ALLOW), "a")], mode=mode)
    async with running_stage(shared_database, guards=guards) as stage:
        stage.provider.add("Fine.", "Fine.")
        first, *others = await stage.play("Hello")
        shown = first["metadata"]["guardrail"]["input"]
        assert [(entry["action"], entry["reason"], entry["metadata"]) for entry in shown] == [
            ("flag", "odd", {"guardrail_id": "f"}),
            ("allow", None, {"guardrail_id": "a"}),
        ]
        assert all("metadata" not in chunk for chunk in others)


@requirement("R14")
async def test_input_guards_are_told_the_turn_with_its_persona_and_its_flags(shared_database: str) -> None:
    turns: list[TurnInput] = []

    class Looks(InputOnly):
        async def evaluate_input(self, context: Any, turn: TurnInput) -> None:
            self.contexts.append(context)
            turns.append(turn)

    guard = Looks(says(None), "g")
    async with running_stage(shared_database, guards=Guards([guard])) as stage:
        stage.provider.add("Fine.")
        await stage.play("Hello", options=TurnOptions(custom_flags={"mode": "x"}))
        assert turns[0].persona_id == guard.contexts[0].persona_id == "demo"
        assert guard.contexts[0].metadata == {"mode": "x"}
        assert (guard.contexts[0].user_id, guard.contexts[0].conversation_id) == ("ada", CHAT)


async def test_the_input_is_judged_beside_the_preparation_and_awaited_before_anything_is_stored(
    shared_database: str,
) -> None:
    asked, goes = asyncio.Event(), asyncio.Event()

    class Waits(InputOnly):
        async def evaluate_input(self, context: Any, turn: TurnInput) -> None:
            asked.set()
            await goes.wait()

    class Tells(Playing):
        was_acquired = asyncio.Event()

        async def acquire(self, *whom: Any) -> Any:
            self.was_acquired.set()
            return await super().acquire(*whom)

    playing = Tells()
    guards = Guards([Waits(says(None), "g")], mode="until_input_ok")
    async with running_stage(shared_database, gmis=playing, guards=guards) as stage:
        turn = asyncio.create_task(stage.runtime.start_turn(turn_input("Hello")))
        await asyncio.wait_for(asyncio.gather(asked.wait(), playing.was_acquired.wait()), 5)
        assert await traces(stage) == 0
        assert playing.asked == []
        turn.cancel()
        goes.set()
        await asyncio.wait({turn})


async def test_a_refusal_of_the_preparation_gives_up_the_judging(shared_database: str) -> None:
    guard = Hanging(says(None), "g")
    async with running_stage(shared_database, guards=Guards([guard], mode="until_input_ok")) as stage:
        [refusal] = await stage.play("Hello", persona_id="nobody")
        assert refusal["code"] == "GMI_PERSONA_NOT_FOUND"
        await asyncio.wait_for(guard.gone.wait(), 5) if guard.begun.is_set() else None


async def test_an_input_that_is_not_judged_in_the_time_of_the_turn_is_refused(shared_database: str) -> None:
    guards = Guards([Hanging(says(None), "g")])
    async with running_stage(shared_database, guards=guards) as stage:
        [refusal] = await stage.play("Hello", options=TurnOptions(turn_timeout_seconds=0.05))
        assert refusal["code"] == "TURN_TIMEOUT"
        assert await traces(stage) == 0


async def test_a_client_that_goes_takes_the_judging_along(shared_database: str) -> None:
    guard = Hanging(says(None), "g")
    async with running_stage(shared_database, guards=Guards([guard])) as stage:
        turn = asyncio.create_task(stage.runtime.start_turn(turn_input("Hello")))
        await asyncio.wait_for(guard.begun.wait(), 5)
        turn.cancel()
        await asyncio.wait({turn})
        await asyncio.wait_for(guard.gone.wait(), 5)
        assert await traces(stage) == 0


async def test_a_repeated_request_is_known_by_what_came_in_not_by_what_was_made_of_it(shared_database: str) -> None:
    guard = InputOnly(replaces("secret", "[secret]"), "g", GuardConfig(can_sanitize=True))
    async with running_stage(shared_database, guards=Guards([guard])) as stage:
        stage.provider.add("Fine.")
        turn = turn_input("secret", idempotency_key="k")
        first = await stage.runtime.start_turn(turn)
        again = await stage.runtime.start_turn(turn)
        assert (again.stream_id, again.replayed) == (first.stream_id, True)
        assert len(guard.asked) == 1
        async for _ in await stage.runtime.open_operation(first):
            pass


@requirement("R18", "R19")
@pytest.mark.parametrize("mode", MODES)
async def test_without_a_required_guard_a_turn_is_one_error_and_nothing_else(
    shared_database: str, mode: OutputMode
) -> None:
    other, playing = Acting(says(ALLOW), "other"), Playing()
    guards = Guards([Acting(says(ALLOW), "needed"), other], required=[RequiredGuard("needed")], mode=mode)
    async with running_stage(shared_database, gmis=playing, guards=guards) as stage:
        guards.disable("needed")
        [refusal] = await stage.play("Hello")
        assert (refusal["type"], refusal["code"]) == ("error", "SYS_GUARDRAIL_REQUIRED_MISSING")
        assert refusal["details"] == {"missing": ["needed"], "missing_stage": []}
        assert (other.asked, playing.acquired, await traces(stage)) == ([], [], 0)


async def test_without_a_required_guard_results_are_not_taken(shared_database: str) -> None:
    guards = Guards([Acting(says(ALLOW), "needed")], required=[RequiredGuard("needed", ("input",))])
    async with running_stage(shared_database, guards=guards) as stage:
        stage.provider.add([call(WEATHER.name, {"city": "Berlin"}, id="c1")], "It is warm.")
        chunks = await stage.play("Weather?", tools=[WEATHER])
        pending = await stage.pending()
        assert pending is not None
        guards.disable("needed")
        for refused in (
            await stage.pass_results(chunks[-1]["stream_id"], result("c1")),
            await stage.resume(pending, result("c1")),
        ):
            assert [chunk["code"] for chunk in refused] == ["SYS_GUARDRAIL_REQUIRED_MISSING"]
        assert await stage.pending() == pending
        assert len(stage.provider.requests) == 1
        guards.enable("needed")
        assert (await stage.resume(pending, result("c1")))[-1]["type"] == "final_response"


async def test_a_required_output_guard_has_the_reply_before_the_host(shared_database: str) -> None:
    guards = Guards([OutputOnly(blocks("bomb"), "g")], required=[RequiredGuard("g", ("output",))])
    async with running_stage(shared_database, guards=guards) as stage:
        stage.provider.add(["A bo", "mb"])
        assert "bo" not in str([chunk.get("text_delta") for chunk in await stage.play("Hello")])


def test_the_refusals_have_statuses_of_their_own() -> None:
    assert (GuardrailBlockedError.kind.value, GuardrailMissingError.kind.value) == ("forbidden", "unavailable")


async def test_partial_results_too_need_the_required_guards(shared_database: str) -> None:
    guards = Guards([Acting(says(ALLOW), "needed")], required=[RequiredGuard("needed", ("input",))])
    async with running_stage(shared_database, guards=guards) as stage:
        stage.provider.add([call(WEATHER.name, {"city": city}, id=city) for city in ("c1", "c2")])
        chunks = await stage.play("Weather?", tools=[WEATHER])
        guards.disable("needed")
        refused = await stage.pass_results(chunks[-1]["stream_id"], result("c1"))
        assert refused[0]["code"] == "SYS_GUARDRAIL_REQUIRED_MISSING"
        pending = await stage.pending()
        assert pending is not None
        assert pending.received == ()
        assert ADA.user_id == pending.user_id
