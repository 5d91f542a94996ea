"""A resume: the named pause is taken onto a new stream, by any process, or refused and left as it was."""

from typing import Any

import pytest

from app.domain.turn import Caller, Pause
from tests.requirements import requirement
from tests.stage import WEATHER, Stage, one, result, types
from tests.turn.pausing import by_results, by_resume, codes, held, paused, scripted, status, tables

STRICT: dict[str, Any] = {
    "tenant_mode": "single_tenant",
    "default_organization_id": "acme",
    "strict_organization_isolation": True,
}


@requirement("R7", "R189")
async def test_a_resume_continues_on_a_stream_of_its_own_and_closes_the_old_one(stage: Stage) -> None:
    pause = await paused(stage, "c1")
    stage.provider.add("Mild.")
    done = await by_resume(stage, pause, result("c1"))

    assert types(done)[:2] == ["system_progress", "tool_result_emission"]
    assert done[-1]["final_response_text"] == "Mild."
    assert done[-1]["stream_id"] != pause.stream_id
    assert done[-1]["turn_id"] == pause.turn_id
    assert await status(stage, pause.stream_id) == "cancelled"
    late = await by_results(stage, pause, result("c1"))
    assert codes(late) == ["TOOL_ERROR"]
    details = late[0]["details"]
    assert (details["reason"], details["continued_on"]) == ("resumed", done[-1]["stream_id"])


@requirement("R189", "R191", "R192", "R193")
async def test_a_refused_resume_leaves_the_stream_open(stage: Stage) -> None:
    pause = await paused(stage, "c1")
    before = await tables(stage.database)
    other = Pause(**{name: getattr(pause, name) for name in pause.__slots__} | {"pause_id": "pause_of_nobody"})

    assert codes(await by_resume(stage, other, result("c1"))) == ["SYS_INVALID_STATE"]
    assert codes(await by_resume(stage, pause, result("c9"))) == ["SYS_INVALID_STATE"]
    assert codes(await stage.resume(pause, result("c1"), caller=Caller("eve"))) == ["SYS_RESOURCE_NOT_FOUND"]
    assert await tables(stage.database) == before
    assert await status(stage, pause.stream_id) == "paused"
    assert len(stage.provider.requests) == 1


@requirement("R190", "R192")
async def test_a_resume_that_names_a_pause_that_was_replaced_is_refused(stage: Stage) -> None:
    old = await paused(stage, "c1")
    new = await paused(stage, "c2", text="And in Rome?")

    assert codes(await by_resume(stage, old, result("c1"))) == ["SYS_INVALID_STATE"]
    assert codes(await by_resume(stage, old, result("c2"))) == ["SYS_INVALID_STATE"]
    assert codes(await by_resume(stage, new, result("c1"))) == ["SYS_INVALID_STATE"]
    stage.provider.add("Warm.")
    assert (await by_resume(stage, new, result("c2")))[-1]["final_response_text"] == "Warm."


@requirement("R194", "R195", "R196", "R197", "R198")
@pytest.mark.parametrize("then", ["resume", "results", "new_turn"])
async def test_a_resume_of_a_refused_organization_changes_nothing(shared_database: str, then: str) -> None:
    async with scripted(shared_database, **STRICT) as stage:
        pause = await paused(stage, "c1")
        before = await tables(shared_database)

        refused = await stage.resume(pause, result("c1"), caller=Caller("ada", "other"))
        assert codes(refused) == ["SYS_VALIDATION_ERROR"]
        assert await tables(shared_database) == before
        assert await held(stage) == pause

        stage.provider.add("Mild.")
        match then:
            case "resume":
                done = await by_resume(stage, pause, result("c1"))
            case "results":
                done = await by_results(stage, pause, result("c1"))
            case _:
                done = await stage.play("Something else.", tools=[WEATHER])
                assert [role for role, _ in await stage.said()] == ["user", "assistant", "tool", "user", "assistant"]
        assert one(done, "final_response")["final_response_text"] == "Mild."
        assert await stage.pending() is None


@requirement("R199")
@pytest.mark.parametrize("calls", [("c1",), ("c1", "c2")])
async def test_after_a_restart_a_resume_goes_on_from_what_was_stored(
    shared_database: str, calls: tuple[str, ...]
) -> None:
    async with scripted(shared_database) as stage:
        await paused(stage, *calls)
    async with scripted(shared_database, "Mild.") as stage:
        pause = await held(stage)
        done = await by_resume(stage, pause, *map(result, calls))

        assert done[-1]["final_response_text"] == "Mild."
        assert await stage.pending() is None
    async with scripted(shared_database, "Bye.") as stage:
        assert await stage.pending() is None
        assert [role for role, _ in await stage.said()] == ["user", "assistant", *(["tool"] * len(calls)), "assistant"]
        assert (await stage.play("Thanks."))[-1]["final_response_text"] == "Bye."
