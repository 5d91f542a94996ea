"""Runs of operations that their process has lost: how those end is for others to say, also where this process runs them
again meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from structlog.testing import capture_logs

from app.domain.chunks import FinalResponseMarker, GmiChunk, GmiOutput
from app.domain.ids import fresh_uuid
from app.turn.facade.revival import Revival
from app.turn.gmi.base import GmiTurnInput
from tests.databases import execute, rows
from tests.stage import Stage, running_stage, turn_input
from tests.turn.pausing import speaking, status, until
from tests.turn.playing import Playing, end, with_history


class Lingering(Playing):
    """Says nothing before it is let go; its first run does not leave before it is let go, either."""

    def __init__(self) -> None:
        super().__init__()
        self.may_leave, self.may_answer = asyncio.Event(), asyncio.Event()

    async def process_turn_stream(self, turn: GmiTurnInput) -> AsyncIterator[GmiChunk | GmiOutput]:
        self.asked.append(turn)
        first = len(self.asked) == 1
        try:
            await self.may_answer.wait()
        finally:
            if first:
                await self.may_leave.wait()
        yield FinalResponseMarker()
        yield with_history(end("Done."), turn)


async def test_a_lost_run_that_ends_late_leaves_the_one_that_runs_here_again_alone(shared_database: str) -> None:
    gmi = Lingering()
    async with running_stage(shared_database, gmis=gmi) as stage:
        services, tasks = stage.runtime._services, stage.runtime._lifecycle.tasks
        stage.runtime._lifecycle._sweeping.cancel()
        sweep = partial(stage.runtime._lifecycle._takeover.sweep, Revival(services, tasks).start)
        stream = (await stage.runtime.start_turn(turn_input("Hello."))).stream_id

        async def runs(times: int) -> bool:
            return len(gmi.asked) == times

        await until(partial(runs, 1))
        await execute(shared_database, "UPDATE replicas SET dead = true")
        await services.lease._renew()
        assert await sweep() == 1
        await until(partial(runs, 2))
        gmi.may_leave.set()

        async def one_is_left() -> bool:
            return len(tasks) == 1

        await until(one_is_left)
        assert await sweep() == 0
        gmi.may_answer.set()

        async def is_over() -> bool:
            return await status(stage, stream) != "running"

        await until(is_over)
        assert await stage.said() == [("user", "Hello."), ("assistant", "Done.")]


async def test_an_operation_that_is_no_longer_this_processs_is_not_ended_by_it(stage: Stage) -> None:
    """Its acceptance may have been answered behind the loss of the lease: then nobody has told it that it is lost."""
    other = fresh_uuid()
    started, _ = await speaking(stage)
    stream = started.stream_id
    await rows(stage.database, "INSERT INTO replicas VALUES ($1, false, now(), now() + interval '1 hour')", other)
    with capture_logs() as logs:
        await rows(stage.database, "UPDATE conversations SET running_replica = $1", other)
        await stage.runtime._services.cancels.look()

        async def has_left() -> bool:
            return not stage.runtime._lifecycle.tasks._running

        await until(has_left)
    assert [log["status"] for log in logs if log["event"] == "operation"] == ["lost"]
    assert await status(stage, stream) == "running"
    assert await stage.said() == [("user", "Hello.")]
