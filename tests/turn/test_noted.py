"""What an operation notes before anything of it is seen outside, and what it waits for: its lease, and its fence."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.domain.turn import OperationKind
from app.domain.usage import Usage
from app.providers.scripted import Hold, call
from app.store import claims
from app.streaming.frames import split
from app.streaming.ring import LostFenceError, Ring
from app.turn.orchestrator.operation import Identity, Operation
from tests.databases import rows
from tests.gmi.rig import Echo
from tests.gmi.test_approval import PayBack, asked, says, till
from tests.kill_points import COMMIT, kill_points
from tests.stage import ADA, CHAT, Stage, running_stage, turn_input
from tests.turn.pausing import until

PERSONA = "id: demo\nname: Demo\nsystem_prompt: Be kind.\ntools: [echo]\n"
USE = call("echo", {"n": 1}, id="own-1")
TOUCHED = "SELECT touched FROM inbound_messages"


@asynccontextmanager
async def with_echo(database: str, folder: Path) -> AsyncIterator[tuple[Stage, Echo]]:
    """A stage whose persona has a tool that counts its runs."""
    (folder / "demo.yaml").write_text(PERSONA, encoding="utf-8")
    echo = Echo()
    async with running_stage(database, tools=[echo], personas_dir=folder) as stage:
        yield stage, echo


async def ring_of(stage: Stage, *steps: Any) -> Ring:
    """Start a turn and give its ring."""
    stage.provider.add(*steps)
    started = await stage.runtime.start_turn(turn_input("Hello."))
    ring = stage.runtime._services.rings.find(started.stream_id)
    assert ring is not None
    return ring


@pytest.fixture(autouse=True)
def rings_keep_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rings keep what is stored, so that all that they have had can be counted."""
    monkeypatch.setattr("app.streaming.ring.KEPT_BYTES", 1 << 20)


def texts(ring: Ring) -> int:
    """Count the pieces of text that a reader of the ring could have."""
    return sum(b"\nevent: text_delta\n" in frame for frame in split(b"".join(ring.after(0) or ())))


async def is_over(stage: Stage) -> bool:
    return not stage.runtime._lifecycle.tasks._running


async def waits_for_lease(stage: Stage) -> bool:
    return bool(stage.runtime._services.lease._landed._waiters)


async def waits_or_is_over(stage: Stage) -> bool:
    return await waits_for_lease(stage) or await is_over(stage)


@pytest.fixture
def renewals_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(_: Any) -> None:
        raise ConnectionResetError

    monkeypatch.setattr("app.turn.orchestrator.lease.Lease._renew", fails)


def stale(stage: Stage) -> None:
    stage.runtime._services.lease._deadline = 0.0


def renewed(stage: Stage) -> None:
    stage.runtime._services.lease._extend(stage.runtime._services.clock.boot_seconds())


# Touched --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["Hello, Ada.", [USE]], ids=["text", "a tool"])
async def test_nothing_is_seen_outside_before_it_is_noted(database: str, tmp_path: Path, step: Any) -> None:
    async with kill_points(database) as points, with_echo(points.url, tmp_path) as (stage, echo):
        hold = points.hold("touch", COMMIT)
        ring = await ring_of(stage, step, *(["Done."] if step == [USE] else ()))
        await hold.reached()
        assert (texts(ring), echo.ran) == (0, [])
        assert [row["touched"] for row in await rows(database, TOUCHED)] == [False]
        hold.go()
        await until(partial(is_over, stage))
        assert texts(ring) == 1
        assert len(echo.ran) == (step == [USE])


async def test_a_call_that_a_person_agreed_to_is_not_run_before_it_is_noted(database: str, tmp_path: Path) -> None:
    tool = PayBack()
    async with kill_points(database) as points, till(points.url, tmp_path, tool) as stage:
        stream = (await asked(stage))["stream_id"]
        hold = points.hold("touch", COMMIT)
        stage.provider.add("Paid.")
        passing = asyncio.create_task(stage.pass_results(stream, says("c1")))
        await hold.reached()
        assert tool.paid == []
        hold.go()
        await passing
        assert tool.paid == [500]


@pytest.mark.parametrize("then", [["Unheard."], [USE]], ids=["text", "a tool"])
async def test_who_has_lost_the_fence_shows_nothing_and_runs_no_tool(
    shared_database: str, tmp_path: Path, then: list[Any]
) -> None:
    async with with_echo(shared_database, tmp_path) as (stage, echo):
        hold = Hold()
        ring = await ring_of(stage, [hold, *then])
        await asyncio.wait_for(hold.reached.wait(), 20)
        (running,) = await rows(shared_database, "SELECT id, running_operation FROM conversations")
        async with stage.runtime._services.database.transaction() as connection:
            assert await claims.seize(connection, running["id"], running["running_operation"], only_dead=False)
        await rows(shared_database, "UPDATE inbound_messages SET status = 'failed'")
        hold.release()
        await until(partial(is_over, stage))
        assert (texts(ring), echo.ran) == (0, [])


# The lease ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("renewals_fail")
async def test_past_its_deadline_a_process_sends_nothing_until_a_renewal_lands(stage: Stage) -> None:
    hold = Hold()
    ring = await ring_of(stage, ["So far", hold, " and on."])
    await asyncio.wait_for(hold.reached.wait(), 20)
    stale(stage)
    hold.release()
    await until(partial(waits_or_is_over, stage))
    assert texts(ring) == 1
    renewed(stage)
    await until(partial(is_over, stage))
    assert texts(ring) == 2


@pytest.mark.usefixtures("renewals_fail")
async def test_past_its_deadline_a_process_asks_no_model(stage: Stage) -> None:
    stage.provider.add("Hello.")
    stale(stage)
    await stage.runtime.start_turn(turn_input("Hi."))
    await until(partial(waits_or_is_over, stage))
    assert stage.provider.requests == []
    renewed(stage)
    await until(partial(is_over, stage))
    assert len(stage.provider.requests) == 1


@pytest.mark.usefixtures("renewals_fail")
async def test_past_its_deadline_a_process_runs_no_tool(stage: Stage) -> None:
    operation = Operation(stage.runtime._services, OperationKind.TURN, Identity(ADA, CHAT, CHAT, "st", "turn"))
    stale(stage)
    about_to_run = asyncio.create_task(operation.before_effect())

    async def waits_or_goes_on() -> bool:
        return await waits_for_lease(stage) or about_to_run.done()

    await until(waits_or_goes_on)
    assert not about_to_run.done()
    renewed(stage)
    with pytest.raises(LostFenceError):  # it was never accepted
        await asyncio.wait_for(about_to_run, 20)


# What was used --------------------------------------------------------------------------------------------------


async def test_what_a_round_was_billed_is_kept_before_the_next_one(shared_database: str, tmp_path: Path) -> None:
    async with with_echo(shared_database, tmp_path) as (stage, _):
        hold = Hold()
        await ring_of(stage, [USE, Usage(11, 2)], [hold, "Done."])
        await asyncio.wait_for(hold.reached.wait(), 20)
        kept = await rows(shared_database, "SELECT prompt_tokens FROM usage_ledger")
        assert [row["prompt_tokens"] for row in kept] == [11]
        hold.release()
        await until(partial(is_over, stage))
