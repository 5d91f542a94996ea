"""A pause whose time runs out, with no client there: it is closed, or its turn goes on without answers."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.domain.ids import row_key
from app.domain.jsontext import dumps
from app.domain.turn import Pause, ResultsInput
from app.domain.views import PartialResults
from app.store import pauses
from app.turn.facade import pausing as pausing_stage
from app.turn.facade.expiry import Expiry
from tests.databases import rows
from tests.guardrails.leaks import replay
from tests.requirements import requirement
from tests.stage import ADA, CHAT, WEATHER, Stage, result
from tests.turn.pausing import asks_for, by_results, by_resume, codes, paused, scripted, status, told, until

SOON = 0.05
NEWER = """
UPDATE pending_external_tool_requests SET snapshot = jsonb_set(snapshot::jsonb, '{version}', '99')::json
"""
OVER = "UPDATE pending_external_tool_requests SET expires_at = requested_at - interval '1 hour'"


async def is_over(stage: Stage) -> bool:
    return await stage.pending() is None


async def ended(stage: Stage, stream_id: str) -> bool:
    return (await status(stage, stream_id)) in {"completed", "cancelled", "failed"}


async def refused_as_expired(stage: Stage, pause: Pause) -> None:
    """See that results are too late, say why, and ask no model."""
    asked = len(stage.provider.requests)
    late = await by_results(stage, pause, result("c1"))
    assert codes(late) == ["TOOL_ERROR"]
    assert late[0]["details"]["reason"] == "expired"
    assert codes(await by_resume(stage, pause, result("c1"))) == ["SYS_INVALID_STATE"]
    assert len(stage.provider.requests) == asked


@requirement("R92")
async def test_a_pause_that_is_to_be_closed_ends_with_its_calls_answered(stage: Stage) -> None:
    pause = await paused(stage, "c1", "c2", pause_ttl_seconds=SOON)
    assert pause.expires_at is not None
    await until(partial(is_over, stage))

    assert await status(stage, pause.stream_id) == "cancelled"
    assert len(stage.provider.requests) == 1
    await refused_as_expired(stage, pause)
    stored = [message for message in await stage.messages() if message.role == "tool"]
    assert [(message.tool_call_id, message.is_error) for message in stored] == [("c1", True), ("c2", True)]
    assert all("EXTERNAL_TOOL_NOT_RUN" in message.content for message in stored)
    stage.provider.add("Hello again.")
    assert (await stage.play("Still there?"))[-1]["final_response_text"] == "Hello again."
    roles = [message["role"] for message in told(stage.provider.requests[-1])]
    assert roles == ["user", "assistant", "tool", "tool", "user"]


async def test_a_pause_that_is_to_go_on_does_so_with_what_has_come(stage: Stage) -> None:
    pause = await paused(stage, "c1", "c2", pause_ttl_seconds=SOON * 10, on_expiry="continue")
    stage.provider.add("Then without Berlin.")
    half = ResultsInput(ADA, (result("c2", "25"),), stream_id=pause.stream_id, partial=True)
    assert isinstance(await stage.runtime.pass_results(half), PartialResults)
    await until(partial(ended, stage, pause.stream_id))

    assert await status(stage, pause.stream_id) == "completed"
    assert (await stage.said())[-1] == ("assistant", "Then without Berlin.")
    resolved = dumps({"pause_resolved": {"pause_id": pause.pause_id, "by": "expired"}}).decode()
    assert resolved in await replay(stage, pause.stream_id)
    first, second = told(stage.provider.requests[-1])[-2:]
    assert "EXTERNAL_TOOL_NOT_RUN" in first["content"]
    assert second["content"] == "25"
    await refused_as_expired(stage, pause)


@pytest.mark.parametrize("on_expiry", ["close", "continue"])
async def test_a_turn_with_keys_of_its_own_is_closed_since_nobody_kept_the_keys(stage: Stage, on_expiry: Any) -> None:
    keys = {"scripted": "sk-of-the-request"}
    pause = await paused(stage, "c1", pause_ttl_seconds=SOON, on_expiry=on_expiry, provider_api_keys=keys)
    await until(partial(is_over, stage))

    assert await status(stage, pause.stream_id) == "cancelled"
    assert len(stage.provider.requests) == 1


async def test_a_turn_that_can_no_longer_go_on_is_closed_instead(shared_database: str) -> None:
    async with scripted(shared_database) as stage:
        pause = await paused(stage, "c1", pause_ttl_seconds=3600, on_expiry="continue")
    broken = "UPDATE pending_external_tool_requests SET snapshot = jsonb_set(snapshot::jsonb, '{persona}', $1)::json"
    await rows(shared_database, broken, '"unreadable"')
    await rows(shared_database, "UPDATE pending_external_tool_requests SET expires_at = now()")
    async with scripted(shared_database) as stage:
        await until(partial(is_over, stage))
        assert await status(stage, pause.stream_id) == "cancelled"


async def test_the_end_of_a_pause_is_written_on_its_stream(stage: Stage) -> None:
    pause = await paused(stage, "c1", pause_ttl_seconds=SOON)
    await until(partial(is_over, stage))
    frames = await stage.runtime.open_events(ADA, pause.stream_id, None, follow=False)
    assert frames is not None
    text = b"".join([piece async for piece in frames])

    assert b'"pause_resolved":{"pause_id":"%s","by":"expired"}' % pause.pause_id.encode() in text
    last = text.rstrip(b"\n").rsplit(b"\n\n", 1)[1]
    assert b"event: end\n" in last
    assert b'"status":"cancelled"' in last
    assert b'"reason":"expired"' in last


async def test_a_pause_without_a_time_of_its_own_does_not_expire(stage: Stage) -> None:
    pause = await paused(stage, "c1")
    assert pause.expires_at is None
    (row,) = await rows(stage.database, "SELECT expires_at FROM pending_external_tool_requests")
    assert row["expires_at"] is None


async def test_the_personas_time_holds_for_turns_that_name_none(shared_database: str, tmp_path: Path) -> None:
    persona = "id: demo\nname: Demo\nsystem_prompt: Be kind.\npause_ttl_seconds: 0.05\non_expiry: continue\n"
    (tmp_path / "demo.yaml").write_text(persona, encoding="utf-8")
    async with scripted(shared_database, personas_dir=tmp_path) as stage:
        stage.provider.add(asks_for("c1"), "Without, then.")
        chunks = await stage.play("What is the weather?", tools=[WEATHER])
        await until(partial(ended, stage, chunks[-1]["stream_id"]))
        assert (await stage.said())[-1] == ("assistant", "Without, then.")

        longer = await paused(stage, "c2", pause_ttl_seconds=3600)
        assert longer.expires_at is not None


async def test_pauses_that_can_not_be_resolved_here_keep_none_behind_them_from_its_end(
    shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a newer release stay for a process that can read them."""
    monkeypatch.setattr(pausing_stage, "AT_ONCE", 1)
    async with scripted(shared_database) as stage:
        await paused(stage, "c1", pause_ttl_seconds=3600, on_expiry="continue")
        await rows(shared_database, NEWER)
        await paused(stage, "c2", conversation="chat-2", pause_ttl_seconds=3600)
        await rows(shared_database, OVER)
        expiry = Expiry(stage.runtime._pausing, stage.runtime.go_on_expired, stage.runtime._services.clock.boot_seconds)
        for _ in range(2):
            await expiry.look()
        assert await stage.pending("chat-2") is None
        assert await stage.pending() is not None


async def test_a_pause_runs_out_when_its_time_is_over_and_it_is_still_held(stage: Stage) -> None:
    pause = await paused(stage, "c1", pause_ttl_seconds=3600)
    found = [(row_key("", CHAT), pause.pause_id)]
    change = "UPDATE pending_external_tool_requests SET "
    async with stage.runtime._services.database.transaction() as connection:
        assert await pauses.expired(connection, 9) == []
        await connection.driver.execute(change + "expires_at = now() - interval '1 s'")
        assert await pauses.expired(connection, 9) == found
        await connection.driver.execute(change + "state = 'recorded'")
        assert await pauses.expired(connection, 9) == []
        await connection.driver.execute(change + "state = 'held', expires_at = NULL")
