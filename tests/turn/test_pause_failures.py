"""When a continuation fails: before its results are stored the pause is as it was, afterwards it was taken."""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from app.domain.errors import ProviderError
from app.providers.scripted import Hold
from tests.requirements import requirement
from tests.stage import ADA, WEATHER, Stage, one, result, types
from tests.turn.pausing import (
    Answer,
    asks_for,
    by_results,
    by_resume,
    codes,
    held,
    meanwhile,
    paused,
    scripted,
    status,
    tables,
    told,
    until,
    waiting,
)
from tests.turn.refusing import refusing

WAYS = pytest.mark.parametrize("way", [by_results, by_resume])
PAUSES = "pending_external_tool_requests"


async def works_on(stage: Stage, then: str) -> None:
    """See that the pause can still be continued, or ended, and that the conversation is whole afterwards."""
    pause = await held(stage)
    stage.provider.add("Mild.", "Bye.")
    match then:
        case "resume":
            done = await by_resume(stage, pause, result("c1"))
        case "results":
            done = await by_results(stage, pause, result("c1"))
        case _:
            done = await stage.play("Something else.", tools=[WEATHER])
    assert one(done, "final_response")["final_response_text"] == "Mild."
    assert await stage.pending() is None
    assert (await stage.play("Thanks."))[-1]["final_response_text"] == "Bye."


@dataclass(frozen=True)
class Refusal:
    """A row that the store does not take, and what is tried afterwards."""

    table: str
    doing: str
    when: str
    then: str


REFUSALS = [
    Refusal(PAUSES, "UPDATE", "NEW.state = 'recorded'", "resume"),
    Refusal("messages", "INSERT", "NEW.role = 'tool'", "results"),
    Refusal("inbound_messages", "INSERT", "true", "new_turn"),
    Refusal("stream_events", "INSERT", "true", "resume"),
]


@requirement("R200", "R202", "R203", "R204", "R205", "R206", "R207", "R341", "R342")
@WAYS
@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.table)
async def test_a_store_that_refuses_any_part_of_the_taking_leaves_the_pause_as_it_was(
    database: str, way: Answer, refusal: Refusal
) -> None:
    async with scripted(database) as stage:
        pause = await paused(stage, "c1")
        before = await tables(database)

        async with refusing(database, refusal.table, refusal.doing, refusal.when):
            assert codes(await way(stage, pause, result("c1"))) == ["SYS_INTERNAL_SERVER_ERROR"]
        assert await tables(database) == before
        assert len(stage.provider.requests) == 1
        await works_on(stage, refusal.then)


@requirement("R201", "R202", "R203", "R204", "R205", "R206")
@WAYS
@pytest.mark.parametrize(
    ("output", "then"),
    [
        ({1, 2}, "resume"),
        (b"bytes", "results"),
        (float("inf"), "new_turn"),
        ({"deep": [float("nan")]}, "resume"),
        (object(), "results"),
    ],
)
async def test_a_result_without_a_json_form_leaves_the_pause_as_it_was(
    shared_database: str, way: Answer, output: Any, then: str
) -> None:
    async with scripted(shared_database) as stage:
        pause = await paused(stage, "c1")
        before = await tables(shared_database)

        assert codes(await way(stage, pause, result("c1", output))) == ["SYS_INVALID_STATE"]
        assert await tables(shared_database) == before
        await works_on(stage, then)


@WAYS
async def test_a_result_over_the_limit_leaves_the_pause_as_it_was(shared_database: str, way: Answer) -> None:
    async with scripted(shared_database, max_result_bytes=2048) as stage:
        pause = await paused(stage, "c1")
        before = await tables(shared_database)

        refused = await way(stage, pause, result("c1", "x" * 2048))
        assert codes(refused) == ["SYS_PAYLOAD_TOO_LARGE"]
        assert "the limit is 2048" in refused[0]["message"]
        assert await tables(shared_database) == before
        stage.provider.add("Long.")
        assert one(await way(stage, pause, result("c1", "x" * 1900)), "final_response")["error"] is None


async def test_no_results_at_all_are_refused(stage: Stage) -> None:
    pause = await paused(stage, "c1")
    for way in (by_results, by_resume):
        assert codes(await way(stage, pause)) == ["SYS_VALIDATION_ERROR"]
    assert (await held(stage)).pause_id == pause.pause_id


@requirement("R208", "R209", "R346", "R300", "R302", "R303")
@WAYS
async def test_a_continuation_that_fails_later_keeps_its_results_and_its_pause_is_gone(
    stage: Stage, way: Answer
) -> None:
    pause = await paused(stage, "c1")
    stage.provider.add([ProviderError("no more tokens", reason="quota", provider="scripted")], "Bye.")
    done = await way(stage, pause, result("c1"))

    assert [kind for kind in types(done) if kind in {"error", "final_response"}] == ["error", "final_response"]
    assert done[-1]["error"]["code"] == one(done, "error")["code"] == "LLM_PROVIDER_ERROR"
    assert done[-1]["error"]["message"] == one(done, "error")["message"]
    assert await status(stage, done[-1]["stream_id"]) == "failed"
    assert ("tool", "21 degrees") in await stage.said()
    assert await stage.pending() is None
    assert codes(await by_results(stage, pause, result("c1"))) == ["TOOL_ERROR"]
    assert codes(await by_resume(stage, pause, result("c1"))) == ["SYS_INVALID_STATE"]
    assert (await stage.play("Go on."))[-1]["final_response_text"] == "Bye."
    assert [message["role"] for message in told(stage.provider.requests[-1])] == ["user", "assistant", "tool", "user"]


@requirement("R210", "R211", "R212")
@pytest.mark.parametrize("way", [None, by_results, by_resume])
async def test_a_pause_that_can_not_be_saved_is_not_told_and_not_held(database: str, way: Answer | None) -> None:
    """The pages answer such a pause as a new turn does; here it is never stored in part, so nothing is left to end."""
    async with scripted(database) as stage:
        pause = await paused(stage, "c1") if way else None
        stage.provider.add(asks_for("c2"))
        async with refusing(database, PAUSES, "INSERT"):
            if way is None or pause is None:
                chunks = await stage.play("What is the weather?", tools=[WEATHER])
            else:
                chunks = await way(stage, pause, result("c1"))

        assert "tool_call_request" not in types(chunks)
        assert one(chunks, "error")["code"] == "SYS_INTERNAL_SERVER_ERROR"
        assert await stage.pending() is None
        assert await status(stage, chunks[-1]["stream_id"]) == "failed"
        assert codes(await stage.pass_results(chunks[-1]["stream_id"], result("c2"))) == ["TOOL_ERROR"]
        stage.provider.add("Bye.")
        assert (await stage.play("Go on."))[-1]["final_response_text"] == "Bye."


@requirement("R213", "R214", "R215", "R216")
@WAYS
async def test_a_turn_that_comes_while_a_continuation_runs_is_refused_or_waits_and_ends_no_pause(
    stage: Stage, way: Answer
) -> None:
    pause = await paused(stage, "c1")
    hold = Hold()
    stage.provider.add([hold, "Mild."], "Bye.")
    async with meanwhile(way(stage, pause, result("c1"))) as continued:
        await hold.reached.wait()
        refused = await stage.play("Hurry.")
        waits = asyncio.create_task(stage.play("Thanks.", on_busy="wait"))
        await until(partial(waiting, stage))
        hold.release()

    assert codes(refused) == ["CONVERSATION_BUSY"]
    stream_id = continued.result()[-1]["stream_id"]
    assert refused[0]["details"]["stream_id"] == stream_id
    assert (await waits)[-1]["final_response_text"] == "Bye."
    assert await stage.said() == [
        ("user", "What is the weather?"),
        ("assistant", None),
        ("tool", "21 degrees"),
        ("assistant", "Mild."),
        ("user", "Thanks."),
        ("assistant", "Bye."),
    ]
    assert [message["content"] for message in told(stage.provider.requests[-1])][-2:] == ["Mild.", "Thanks."]
    assert (await stage.runtime.stream_state(ADA, stream_id)).status.value == "completed"
