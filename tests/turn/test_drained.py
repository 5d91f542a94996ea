"""A drain: nothing new is taken, nothing that was said is lost, and what still runs can be taken over at once."""

import asyncio

import pytest
from structlog.testing import capture_logs

from app.domain.errors import DatabaseError, UnavailableError
from app.providers.scripted import Hold
from app.streaming.log import LogWriter
from app.turn.orchestrator.lease import Lease
from tests.databases import rows
from tests.stage import running_stage, turn_input
from tests.turn.pausing import speaking, until

LOCKED = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
SAID = "SELECT frames FROM stream_events ORDER BY fence, first_n"


async def never(_: LogWriter) -> None:
    await asyncio.Event().wait()


async def test_a_process_that_goes_writes_what_was_said_and_hands_its_operations_over(
    shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogWriter, "run", never)
    leave = Lease.leave

    async def leaving(lease: Lease) -> None:
        # Whoever takes over from here on must find all that was said.
        assert b"So far" in b"".join(row["frames"] for row in await rows(shared_database, SAID))
        await leave(lease)

    monkeypatch.setattr(Lease, "leave", leaving)
    async with running_stage(shared_database) as stage:
        await speaking(stage)
        ring = stage.runtime._services.rings.all()[0]
        with capture_logs() as logs:
            await stage.runtime.drain()

        assert [log["status"] for log in logs if log["event"] == "operation"] == ["lost"]
        assert ring.lost
        assert [row["dead"] for row in await rows(shared_database, "SELECT dead FROM replicas")] == [True]
        assert not (await stage.runtime.readiness())["accepting"]
        with pytest.raises(UnavailableError, match="shutting down"):
            await stage.runtime.start_turn(turn_input("Hello?", conversation="chat-2"))

        async def takes_nothing_over() -> bool:
            return stage.runtime._lifecycle._sweeping.done

        await until(takes_nothing_over)


async def test_what_was_said_behind_a_batch_that_could_not_be_written_yet_is_not_lost(
    shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogWriter, "run", never)
    async with running_stage(shared_database) as stage:
        second = Hold()
        _, first = await speaking(stage, "and further", second)
        services = stage.runtime._services
        async with services.database.transaction() as holder:
            await holder.driver.execute("SELECT 1 FROM conversations FOR UPDATE")
            await services.log.flush()
        first.release()
        await asyncio.wait_for(second.reached.wait(), 20)
        await stage.runtime.drain()
    said = b"".join(row["frames"] for row in await rows(shared_database, SAID))
    assert b"So far" in said
    assert b"and further" in said


async def test_what_a_process_that_goes_still_hears_from_its_model_is_told_to_nobody(
    shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = Lease.leave

    async def leaving(lease: Lease) -> None:
        hold.release()
        for _ in range(100):
            await asyncio.sleep(0)
        await leave(lease)

    monkeypatch.setattr(Lease, "leave", leaving)
    async with running_stage(shared_database) as stage:
        _, hold = await speaking(stage, "and further", Hold())
        (ring,) = stage.runtime._services.rings.all()
        await stage.runtime.drain()

    assert ring.last_n == ring.durable_n
    said = b"".join(row["frames"] for row in await rows(shared_database, SAID))
    assert b"So far" in said
    assert b"further" not in said


async def test_a_drain_goes_on_to_its_end_without_its_database(
    shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: LogWriter) -> None:
        raise DatabaseError(SAID)

    async with running_stage(shared_database) as stage:
        _, hold = await speaking(stage)
        monkeypatch.setattr(LogWriter, "flush", away)
        await stage.runtime.drain()
        assert not stage.runtime._lifecycle.tasks._running
        assert hold.closed


async def test_what_ends_within_the_grace_ends_as_ever(shared_database: str) -> None:
    async with running_stage(shared_database, drain_grace_seconds=30) as stage:
        hold = Hold()
        stage.provider.add([hold, "Done."])
        playing = asyncio.create_task(stage.play("Hello."))
        await asyncio.wait_for(hold.reached.wait(), 20)
        draining = asyncio.create_task(stage.runtime.drain())

        async def is_draining() -> bool:
            return not stage.runtime._lifecycle._open

        await until(is_draining)
        hold.release()
        assert (await asyncio.wait_for(playing, 20))[-1]["final_response_text"] == "Done."
        await asyncio.wait_for(draining, 20)


async def test_what_waits_to_be_accepted_is_refused_as_what_comes_later_is(shared_database: str) -> None:
    async with running_stage(shared_database) as stage:
        await speaking(stage)
        waits = asyncio.Event()
        queued = asyncio.create_task(stage.runtime.start_turn(turn_input("And?", on_busy="wait"), waits.set))
        await asyncio.wait_for(waits.wait(), 20)
        async with stage.runtime._services.database.transaction() as other:
            await other.driver.execute("LOCK TABLE streams")
            beginning = asyncio.create_task(stage.runtime.start_turn(turn_input("Hello?", conversation="chat-2")))

            async def begins() -> bool:
                return bool(await rows(shared_database, LOCKED))

            await until(begins)
            leaving = asyncio.create_task(stage.runtime.drain())
            told = await asyncio.wait_for(asyncio.gather(queued, beginning, return_exceptions=True), 20)
        await leaving

    assert [type(error) for error in told] == [UnavailableError] * 2
    assert all("shutting down" in str(error) for error in told)
