"""Cancel and timeout: what runs is ended and what it had is kept; a held pause is ended with its calls answered."""

import asyncio
from functools import partial

import pytest
from pydantic import SecretStr

from app.bootstrap import build
from app.domain.errors import NotFoundError, TurnTimeoutError
from app.domain.turn import Caller, TurnOptions
from app.domain.usage import Usage
from app.domain.views import Started
from app.providers.scripted import Hold
from app.settings import Settings
from app.turn.facade.host import Chunk
from tests.databases import rows
from tests.mock_model import ModelServer
from tests.requirements import requirement
from tests.stage import ADA, WEATHER, Stage, one, result, turn_input, types
from tests.turn.pausing import (
    Answer,
    by_results,
    by_resume,
    codes,
    meanwhile,
    paused,
    scripted,
    status,
    tables,
    told,
    until,
)


async def ended(stage: Stage, stream_id: str) -> bool:
    return await status(stage, stream_id) not in {"running", "paused"}


async def begun(stage: Stage, text: str = "First.") -> tuple[Started, Hold]:
    """Start a turn that has used and said something, and waits in the middle."""
    hold = Hold()
    stage.provider.add([Usage(10, 3), "So far", hold, " so good."])
    started = await stage.runtime.start_turn(turn_input(text))
    await asyncio.wait_for(hold.reached.wait(), 20)
    return started, hold


async def goes_on(stage: Stage) -> None:
    """See that the conversation's next turn works."""
    stage.provider.add("Fine.")
    assert (await stage.play("And now?"))[-1]["final_response_text"] == "Fine."


async def test_a_running_turn_is_cancelled_and_keeps_text_and_usage(stage: Stage) -> None:
    started, hold = await begun(stage)
    assert await stage.runtime.cancel(ADA, started.stream_id) == "cancelling"
    await until(partial(ended, stage, started.stream_id))

    assert hold.closed
    view = await stage.runtime.stream_state(ADA, started.stream_id)
    assert view.status.value == "cancelled"
    assert view.final_response is not None
    assert view.final_response["final_response_text"] == "So far"
    assert (view.usage or {})["prompt_tokens"] == 10
    assert await stage.said() == [("user", "First."), ("assistant", "So far")]
    assert await stage.runtime.cancel(ADA, started.stream_id) == "already_ended"
    assert codes(await stage.pass_results(started.stream_id, result("c1"))) == ["TOOL_ERROR"]
    await goes_on(stage)
    assert [message["content"] for message in told(stage.provider.requests[-1])] == ["First.", "So far", "And now?"]


async def test_a_cancel_is_heard_by_the_process_that_runs_the_turn(shared_database: str) -> None:
    async with scripted(shared_database) as stage, scripted(shared_database) as other:
        started, hold = await begun(stage)
        assert await other.runtime.cancel(ADA, started.stream_id) == "cancelling"
        await until(partial(ended, other, started.stream_id))
        assert hold.closed
        assert ("assistant", "So far") in await other.said()
        await goes_on(other)


async def test_the_providers_socket_is_closed(shared_database: str, mock: ModelServer) -> None:
    mock.script({"steps": [{"text": "So far"}, {"hang": True}]})
    settings = Settings(
        _env_file=None,
        drain_grace_seconds=0,
        openai_api_key=SecretStr("sk-test-of-the-mock"),
        openai_base_url=mock.base_url,
        default_model="openai:mock",
    )
    runtime = build(settings, shared_database)
    await runtime.start()
    try:
        started = await runtime.start_turn(turn_input("First."))
        await mock.requests(1)
        assert await runtime.cancel(ADA, started.stream_id) == "cancelling"
        async with asyncio.timeout(30):
            assert await mock.closed(1) == [0]
        text = b"".join([piece async for piece in await runtime.open_operation(started)])
        assert b'"status":"cancelled"' in text
    finally:
        await runtime.stop()


@pytest.mark.parametrize("way", [by_results, by_resume])
async def test_a_continuation_is_cancelled_and_its_results_stay(stage: Stage, way: Answer) -> None:
    pause = await paused(stage, "c1")
    hold = Hold()
    stage.provider.add([Usage(30, 1), "Berlin is", hold, " mild."])
    async with meanwhile(way(stage, pause, result("c1"))) as continued:
        await hold.reached.wait()
        (stream_id,) = {row["stream_id"] for row in await running_streams(stage)}
        assert await stage.runtime.cancel(ADA, stream_id) == "cancelling"
    chunks: list[Chunk] = continued.result()

    assert one(chunks, "final_response")["final_response_text"] == "Berlin is"
    assert "error" not in types(chunks)
    assert one(chunks, "final_response")["usage"]["prompt_tokens"] == 30
    assert await status(stage, stream_id) == "cancelled"
    assert await stage.pending() is None
    assert [role for role, _ in await stage.said()] == ["user", "assistant", "tool", "assistant"]
    assert codes(await by_resume(stage, pause, result("c1"))) == ["SYS_INVALID_STATE"]
    await goes_on(stage)


async def running_streams(stage: Stage) -> list[dict[str, str]]:
    return [dict(row) for row in await rows(stage.database, "SELECT stream_id FROM streams WHERE status = 'running'")]


@requirement("R92", "R75")
async def test_a_held_pause_is_cancelled_with_its_calls_answered(stage: Stage) -> None:
    pause = await paused(stage, "c1", "c2")
    assert await stage.runtime.cancel(ADA, pause.stream_id) == "cancelled"

    assert await stage.pending() is None
    assert await status(stage, pause.stream_id) == "cancelled"
    assert [role for role, _ in await stage.said()] == ["user", "assistant", "tool", "tool"]
    late = await by_results(stage, pause, result("c1"))
    assert (codes(late), late[0]["details"]["reason"]) == (["TOOL_ERROR"], "cancelled")
    assert await stage.runtime.cancel(ADA, pause.stream_id) == "already_ended"
    await goes_on(stage)
    roles = [message["role"] for message in told(stage.provider.requests[-1])]
    assert roles == ["user", "assistant", "tool", "tool", "user"]


async def test_what_has_ended_and_what_is_anothers_is_not_cancelled(stage: Stage) -> None:
    stage.provider.add("Hello.")
    done = await stage.play("Hi.")
    pause = await paused(stage, "c1")
    before = await tables(stage.database)

    assert await stage.runtime.cancel(ADA, done[-1]["stream_id"]) == "already_ended"
    with pytest.raises(NotFoundError):
        await stage.runtime.cancel(Caller("eve"), pause.stream_id)
    assert await tables(stage.database) == before


async def test_a_turn_that_takes_too_long_is_ended_like_a_cancel_and_says_why(stage: Stage) -> None:
    hold = Hold()
    stage.provider.add([Usage(10, 3), "So far", hold])
    quick = TurnOptions(turn_timeout_seconds=2.0)
    chunks = await asyncio.wait_for(stage.play("First.", options=quick), 20)

    assert [kind for kind in types(chunks) if kind in {"error", "final_response"}] == ["error", "final_response"]
    assert one(chunks, "error")["code"] == "TURN_TIMEOUT"
    final = one(chunks, "final_response")
    assert (final["final_response_text"], final["error"]["code"]) == ("So far", "TURN_TIMEOUT")
    assert final["usage"]["prompt_tokens"] == 10
    assert hold.closed
    assert await status(stage, final["stream_id"]) == "failed"
    assert ("assistant", "So far") in await stage.said()
    await goes_on(stage)


@pytest.mark.parametrize("way", [by_results, by_resume])
async def test_the_time_of_a_turn_holds_for_its_continuation_and_not_for_the_host(stage: Stage, way: Answer) -> None:
    hold = Hold()
    pause = await paused(stage, "c1", options=TurnOptions(turn_timeout_seconds=2.0))
    stage.provider.add([hold])
    chunks = await asyncio.wait_for(way(stage, pause, result("c1")), 20)

    assert one(chunks, "error")["code"] == "TURN_TIMEOUT"
    assert hold.closed
    assert await stage.pending() is None
    await goes_on(stage)


async def test_a_turn_that_waits_too_long_is_refused_and_leaves_the_queue(stage: Stage) -> None:
    started, hold = await begun(stage)
    quick = TurnOptions(turn_timeout_seconds=0.3)
    with pytest.raises(TurnTimeoutError):
        await asyncio.wait_for(
            stage.runtime.start_turn(turn_input("Second.", on_busy="wait", options=quick, tools=[WEATHER])), 20
        )
    assert [row["status"] for row in (await inbound(stage))] == ["running"]
    hold.release()
    await until(partial(ended, stage, started.stream_id))
    await goes_on(stage)


async def inbound(stage: Stage) -> list[dict[str, str]]:
    return [dict(row) for row in await rows(stage.database, "SELECT status FROM inbound_messages")]
