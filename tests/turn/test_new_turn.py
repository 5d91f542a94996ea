"""A new turn that meets a pause: the pause ends once the turn is accepted, and not a moment earlier."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from app.domain.errors import AppError
from app.domain.turn import Caller, Pause, TurnOptions
from app.providers.scripted import Hold, call
from app.turn.orchestrator import turn as turn_stage
from app.turn.preparation.draft import PhaseServices, TurnDraft
from app.turn.preparation.phases import p05_plan
from app.turn.preparation.pipeline import ACCEPTING, PHASES, Phase, prepare
from tests.databases import rows
from tests.requirements import requirement
from tests.stage import ADA, CHAT, WEATHER, Stage, result, running_stage, types, wire

NOT_RUN = "EXTERNAL_TOOL_NOT_RUN"


async def paused(stage: Stage, caller: Caller = ADA) -> Pause:
    stage.provider.add([call("get_weather", {"city": city}, id=city) for city in ("Berlin", "Rome")])
    await stage.play("Weather?", tools=[WEATHER], caller=caller)
    pending = await stage.pending(caller=caller)
    assert pending is not None
    return pending


@requirement("R106", "R107", "R108", "R109", "R110", "R111", "R112", "R119")
async def test_a_new_turn_answers_the_calls_of_the_pause_and_then_stores_its_input(stage: Stage) -> None:
    await paused(stage)
    hold = Hold()
    stage.provider.add([hold, "Never mind then."])
    turn = stage.turn("Forget it.")
    await anext(turn)
    await hold.reached.wait()

    assert await stage.pending() is None
    stored = await stage.messages()
    assert [(message.role, message.tool_call_id) for message in stored] == [
        ("user", None), ("assistant", None), ("tool", "Berlin"), ("tool", "Rome"), ("user", None),
    ]  # fmt: skip
    assert [NOT_RUN in str(message.content) for message in stored[2:4]] == [True, True]
    told = wire(stage.provider.requests[-1])
    assert [message.get("tool_call_id") for message in told[-3:]] == ["Berlin", "Rome", None]
    assert told[-1]["content"] == "Forget it."
    hold.release()
    assert [chunk async for chunk in turn][-1]["final_response_text"] == "Never mind then."


@requirement("R120")
async def test_it_is_phase_8_that_ends_the_pause_and_the_input_stands_behind_its_answers(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = await paused(stage)
    seen: dict[str, tuple[bool, list[str]]] = {}

    def looking(phase: Phase) -> Phase:
        async def run(draft: TurnDraft, services: PhaseServices) -> None:
            await phase.run(draft, services)
            roles = [message.role for message in await stage.messages()]
            seen[phase.name] = (await stage.pending() == pause, roles)

        return replace(phase, run=run)

    stage.provider.add("Never mind then.")
    phases = tuple(looking(phase) for phase in PHASES[: ACCEPTING + 1])
    monkeypatch.setattr(turn_stage, "prepare", partial(prepare, phases=(*phases, *PHASES[ACCEPTING + 1 :])))
    await stage.play("Forget it.")

    before, after = ["user", "assistant"], ["user", "assistant", "tool", "tool", "user"]
    assert len(seen) == 8
    assert {name: held for name, held in seen.items() if held != (True, before)} == {"persist_inbound": (False, after)}


@requirement("R112", "R113", "R114", "R87")
async def test_the_stream_of_the_ended_pause_is_closed_and_takes_no_results(stage: Stage) -> None:
    pause = await paused(stage)
    stage.provider.add("Never mind then.")
    new = await stage.play("Forget it.")

    view = await stage.runtime.stream_state(ADA, pause.stream_id)
    assert view.status.closed
    assert view.pending_request is None
    refused = await stage.pass_results(pause.stream_id, result("Berlin"), result("Rome"))
    assert (types(refused), refused[0]["code"]) == (["error"], "TOOL_ERROR")
    assert refused[0]["details"] == {"reason": "new_turn", "continued_on": new[-1]["stream_id"]}


@requirement("R113")
async def test_the_closed_stream_says_what_resolved_its_pause(stage: Stage) -> None:
    pause = await paused(stage)
    stage.provider.add("Never mind then.")
    await stage.play("Forget it.")

    frames = await stage.runtime.open_events(ADA, pause.stream_id, None, follow=False)
    assert frames is not None
    text = b"".join([piece async for piece in frames])
    assert text.count(b"event: end") == 2  # of the turn, which paused, and of the pause
    assert b'"pause_resolved":{"pause_id":"%b","by":"new_turn"}' % pause.pause_id.encode() in text


@requirement("R106")
async def test_a_turn_may_ask_that_a_held_pause_be_left_alone(stage: Stage) -> None:
    pause = await paused(stage)
    before = await state(stage)
    refused = await stage.play("Anything else?", on_pause="reject")

    assert (types(refused), refused[0]["code"]) == (["error"], "PAUSE_HELD")
    assert refused[0]["details"]["pending_request"] == pause.to_json()
    assert await state(stage) == before


# Refused turns ------------------------------------------------------------------------------------------------------


async def state(stage: Stage, caller: Caller = ADA) -> list[Any]:
    """Give all that a refused turn must leave as it was."""
    counted = "SELECT (SELECT count(*) FROM streams) AS streams, (SELECT count(*) FROM inbound_messages) AS inbound"
    conversation = await rows(stage.database, "SELECT fence, running_operation, persona_id FROM conversations")
    pause = await stage.pending(caller=caller)
    assert pause is not None
    return [
        pause,
        await stage.messages(caller=caller),
        await stage.runtime.stream_state(caller, pause.stream_id),
        *map(tuple, await rows(stage.database, counted)),
        *map(tuple, conversation),
    ]


@asynccontextmanager
async def unchanged(stage: Stage, caller: Caller = ADA) -> AsyncIterator[None]:
    """Hold a pause while the block runs; it must leave everything as it was, and the pause still takes results."""
    pause = await paused(stage, caller)
    before = await state(stage, caller)
    yield
    assert await state(stage, caller) == before
    stage.provider.add("Warm.")
    done = await stage.pass_results(pause.stream_id, result("Berlin"), result("Rome"), caller=caller)
    assert types(done)[-1] == "final_response"
    stage.provider.assert_used_up()


@requirement("R107", "R115", "R118")
async def test_a_turn_for_an_organization_that_is_not_served_leaves_the_pause(shared_database: str) -> None:
    strict: dict[str, Any] = {
        "tenant_mode": "single_tenant",
        "default_organization_id": "acme",
        "strict_organization_isolation": True,
    }
    async with running_stage(shared_database, **strict) as stage, unchanged(stage):
        refused = await stage.play("Hi.", caller=Caller("ada", "other"))
        assert [(chunk["type"], chunk["code"]) for chunk in refused] == [("error", "SYS_VALIDATION_ERROR")]


@requirement("R107", "R116", "R118")
async def test_a_turn_whose_plan_fails_leaves_the_pause(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    class PlanError(AppError):
        code = "SYS_PROCESSING_ERROR"

    async def fail(draft: TurnDraft, services: PhaseServices) -> None:
        raise PlanError("There is no plan for this.")

    phases = tuple(replace(phase, run=fail) if phase.run is p05_plan.run else phase for phase in PHASES)
    async with unchanged(stage):
        with monkeypatch.context() as patched:
            patched.setattr(turn_stage, "prepare", partial(prepare, phases=phases))
            refused = await stage.play("Hi.")
        assert [(chunk["type"], chunk["code"]) for chunk in refused] == [("error", "SYS_PROCESSING_ERROR")]


@requirement("R107", "R117", "R118")
@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"text": " "}, "SYS_VALIDATION_ERROR"),
        ({"persona_id": "nobody"}, "GMI_PERSONA_NOT_FOUND"),
        ({"options": TurnOptions(model="nowhere:model")}, "LLM_PROVIDER_UNAVAILABLE"),
        ({"tools": [WEATHER.__class__("current_time", "A tool of the runtime's")]}, "SYS_VALIDATION_ERROR"),
        ({"caller": Caller("eve")}, "SYS_RESOURCE_NOT_FOUND"),
    ],
    ids=["blank", "unknown persona", "unknown provider", "a name of the runtime's", "another user"],
)
async def test_a_turn_that_preparation_refuses_leaves_the_pause(stage: Stage, more: dict[str, Any], code: str) -> None:
    async with unchanged(stage):
        refused = await stage.play(more.pop("text", "Hi."), **more)
        assert [(chunk["type"], chunk["code"]) for chunk in refused] == [("error", code)]


# Organizations ------------------------------------------------------------------------------------------------------


async def test_a_service_of_one_organization_serves_those_who_name_none_or_it(shared_database: str) -> None:
    async with running_stage(shared_database, tenant_mode="single_tenant", default_organization_id=" acme ") as stage:
        stage.provider.add("Hello.", "Hello again.", "Hello, others.")
        await stage.play("Hi.")
        await stage.play("Hi.", caller=Caller("ada", "acme"))
        assert len(await stage.messages(caller=Caller("ada", "acme"))) == 4
        assert await stage.messages() == await stage.messages(caller=Caller("ada", "acme"))
        await stage.play("Hi.", caller=Caller("ada", "others"))
        assert len(await stage.messages(caller=Caller("ada", "others"))) == 2


async def test_a_strict_service_of_one_organization_that_is_not_named_serves_nobody(shared_database: str) -> None:
    strict: dict[str, Any] = {"tenant_mode": "single_tenant", "strict_organization_isolation": True}
    async with running_stage(shared_database, **strict) as stage:
        refused = await stage.play("Hi.")
        assert [(chunk["type"], chunk["code"]) for chunk in refused] == [("error", "SYS_VALIDATION_ERROR")]
        assert "FERMATA_DEFAULT_ORGANIZATION_ID" in refused[0]["message"]


async def test_organizations_are_told_apart_without_their_white_space(stage: Stage) -> None:
    stage.provider.add("Hello.")
    await stage.play("Hi.", caller=Caller("ada", " acme "))
    assert len(await stage.messages(CHAT, Caller("ada", "acme"))) == 2


@requirement("R113")
@pytest.mark.parametrize("by", ["turn", "resume"])
async def test_a_reader_that_follows_the_pause_on_another_process_is_woken_when_it_is_over(
    database: str, by: str
) -> None:
    async with running_stage(database) as stage, running_stage(database) as other:
        pause = await paused(stage)
        with other.runtime._services.wakeups.watch(pause.stream_id) as watch:
            seen = watch.changes
            stage.provider.add("Done.")
            if by == "turn":
                await stage.play("Forget it.")
            else:
                await stage.resume(pause, result("Berlin"), result("Rome"))
            assert await watch.since(seen, 5)
