"""A turn that meets a busy conversation, or one that waits for its host: refused, waiting, or making its way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from app.domain.errors import ConversationBusyError, PauseHeldError, RateLimitedError
from app.domain.views import Started
from app.providers.scripted import Hold
from tests.databases import rows
from tests.requirements import requirement
from tests.stage import WEATHER, Stage, one, result, turn_input, types
from tests.turn.pausing import (
    asks_for,
    by_results,
    held,
    meanwhile,
    paused,
    scripted,
    speaking,
    status,
    tables,
    told,
    until,
    waiting,
)


async def start(stage: Stage, text: str, **more: Any) -> Started:
    return await stage.runtime.start_turn(turn_input(text, **more))


async def running(stage: Stage, *more: Any, text: str = "First.") -> tuple[Started, Hold]:
    """Start a turn that has said something and waits in the middle."""
    return await speaking(stage, *(more or (" so good.",)), text=text)


async def count_waiting(stage: Stage, number: int) -> bool:
    return await waiting(stage) == number


class Stubborn(Hold):
    """A point at which an answer waits and does not go away when it is told to, until `let_go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = asyncio.Event()

    async def wait(self) -> None:
        try:
            await super().wait()
        except asyncio.CancelledError:
            await self.let_go.wait()
            raise


@asynccontextmanager
async def no_connections(stage: Stage, number: int) -> AsyncIterator[None]:
    """Take every connection of a runtime's pool while the block runs."""
    async with AsyncExitStack() as taken:
        for _ in range(number):
            _ = await taken.enter_async_context(stage.runtime._services.database.transaction())
        yield


async def test_reject_names_what_runs_and_changes_nothing(stage: Stage) -> None:
    first, hold = await running(stage)
    with pytest.raises(ConversationBusyError) as refused:
        await start(stage, "Second.")
    assert refused.value.details["stream_id"] == first.stream_id
    hold.release()
    assert await until(partial(ended_well, stage, first))
    assert await stage.said() == [("user", "First."), ("assistant", "So far so good.")]


async def ended_well(stage: Stage, started: Started) -> bool:
    return await status(stage, started.stream_id) == "completed"


async def test_waiting_turns_run_in_the_order_of_their_arrival_on_both_processes(shared_database: str) -> None:
    async with scripted(shared_database) as one_of, scripted(shared_database) as other:
        _, hold = await running(one_of)
        turns = []
        for number, stage in enumerate([one_of, other, one_of, other], start=1):
            stage.provider.add(f"Answer {number}.")
            turns.append(asyncio.create_task(stage.play(f"Wait {number}.", on_busy="wait")))
            await until(partial(count_waiting, stage, number))
        with pytest.raises(ConversationBusyError):
            await start(one_of, "Reject.")
        hold.release()
        async with asyncio.timeout(20):
            ended = await asyncio.gather(*turns)

        assert {chunks[-1]["type"] for chunks in ended} == {"final_response"}
        users = [text for role, text in await one_of.said() if role == "user"]
        assert users == ["First.", "Wait 1.", "Wait 2.", "Wait 3.", "Wait 4."]
        assert await waiting(one_of) == 0


async def test_a_turn_that_comes_later_does_not_go_before_one_that_waits(stage: Stage) -> None:
    """Also not in the moment in which the conversation is free and the waiter has not looked yet."""
    _, hold = await running(stage)
    stage.provider.add("Second.", "Third.")
    async with meanwhile(stage.play("Second?", on_busy="wait")) as second:
        await until(partial(count_waiting, stage, 1))
        async with meanwhile(stage.play("Third?", on_busy="wait")) as third:
            await until(partial(count_waiting, stage, 2))
            hold.release()
    assert second.result()[-1]["final_response_text"] == "Second."
    assert third.result()[-1]["final_response_text"] == "Third."


async def test_beyond_its_bound_the_queue_takes_nobody(shared_database: str) -> None:
    async with scripted(shared_database, max_waiting_turns=2) as stage:
        _, hold = await running(stage)
        stage.provider.add("A.", "B.", "C.")
        async with meanwhile(stage.play("One.", on_busy="wait")), meanwhile(stage.play("Two.", on_busy="wait")):
            await until(partial(count_waiting, stage, 2))
            with pytest.raises(RateLimitedError) as refused:
                await start(stage, "Three.", on_busy="wait")
            assert refused.value.details["retry_after"] > 0
            hold.release()
        assert (await stage.play("Three.", on_busy="wait"))[-1]["final_response_text"] == "C."


async def test_whoever_stops_waiting_leaves_the_queue(stage: Stage) -> None:
    _, hold = await running(stage)
    stage.provider.add("Third.")
    gone = asyncio.create_task(start(stage, "Second.", on_busy="wait"))
    await until(partial(count_waiting, stage, 1))
    gone.cancel()
    await until(partial(count_waiting, stage, 0))
    hold.release()

    assert (await stage.play("Third?", on_busy="wait"))[-1]["final_response_text"] == "Third."
    assert "Second." not in [text for _, text in await stage.said()]


async def test_a_waiter_whose_process_is_gone_blocks_nobody_and_is_never_run(shared_database: str) -> None:
    async with scripted(shared_database) as stage, scripted(shared_database) as other:
        _, hold = await running(stage)
        dead = asyncio.create_task(start(other, "Lost.", on_busy="wait"))
        await until(partial(count_waiting, stage, 1))
        await rows(
            shared_database,
            "UPDATE replicas SET dead = true"
            " WHERE id = (SELECT replica FROM inbound_messages WHERE status = 'waiting')",
        )
        stage.provider.add("Second.")
        async with meanwhile(stage.play("Second?", on_busy="wait")) as second:
            await until(partial(count_waiting, stage, 2))
            hold.release()
        assert second.result()[-1]["final_response_text"] == "Second."
        dead.cancel()
    stored = await rows(shared_database, "SELECT content FROM messages ORDER BY position")
    assert [row["content"] for row in stored] == [
        '"First."', '"So far so good."', '"Second?"', '"Second."',
    ]  # fmt: skip


async def test_interrupt_ends_what_runs_and_keeps_its_text(stage: Stage) -> None:
    first, hold = await running(stage)
    stage.provider.add("Second.")
    done = await asyncio.wait_for(stage.play("Stop that.", on_busy="interrupt"), 20)

    assert done[-1]["final_response_text"] == "Second."
    assert hold.closed
    assert await status(stage, first.stream_id) == "cancelled"
    assert await stage.said() == [
        ("user", "First."),
        ("assistant", "So far"),
        ("user", "Stop that."),
        ("assistant", "Second."),
    ]
    assert [message["content"] for message in told(stage.provider.requests[-1])] == ["First.", "So far", "Stop that."]


async def test_interrupt_reaches_what_another_process_runs(shared_database: str) -> None:
    async with scripted(shared_database) as stage, scripted(shared_database, "Second.") as other:
        first, hold = await running(stage)
        done = await asyncio.wait_for(other.play("Stop that.", on_busy="interrupt"), 20)

        assert done[-1]["final_response_text"] == "Second."
        assert hold.closed
        assert await status(other, first.stream_id) == "cancelled"
        assert ("assistant", "So far") in await other.said()


async def test_an_interrupting_turn_goes_before_those_that_wait(stage: Stage) -> None:
    first, hold = await running(stage)
    stage.provider.add("Now.", "Later.")
    async with meanwhile(stage.play("Wait.", on_busy="wait")) as waits:
        await until(partial(count_waiting, stage, 1))
        now = await stage.play("Now!", on_busy="interrupt")
    assert hold.closed
    assert (now[-1]["final_response_text"], waits.result()[-1]["final_response_text"]) == ("Now.", "Later.")
    assert await status(stage, first.stream_id) == "cancelled"


async def test_a_newer_interrupter_replaces_one_that_has_not_started(stage: Stage) -> None:
    stubborn = Stubborn()
    stage.provider.add(["So far", stubborn], "Newest.")
    first = await start(stage, "First.")
    await asyncio.wait_for(stubborn.reached.wait(), 20)
    older = asyncio.create_task(start(stage, "Older.", on_busy="interrupt"))
    await until(partial(count_waiting, stage, 1))
    newest = asyncio.create_task(stage.play("Newest?", on_busy="interrupt"))
    async with asyncio.timeout(30):
        with pytest.raises(ConversationBusyError, match="newer"):
            await older
        stubborn.let_go.set()
        assert (await newest)[-1]["final_response_text"] == "Newest."

    assert [text for _, text in await stage.said()] == ["First.", "So far", "Newest?", "Newest."]
    assert await status(stage, first.stream_id) == "cancelled"


async def test_what_does_not_give_way_in_two_seconds_loses_its_fence_and_writes_no_more(stage: Stage) -> None:
    stubborn = Stubborn()
    stage.provider.add(["So far", stubborn, "and further"], "Second.")
    first = await start(stage, "First.")
    await asyncio.wait_for(stubborn.reached.wait(), 20)
    done = await asyncio.wait_for(stage.play("Stop that.", on_busy="interrupt"), 20)
    assert done[-1]["final_response_text"] == "Second."
    before = await tables(stage.database)
    stubborn.let_go.set()
    await until(partial(has_left, stage, first))

    assert await tables(stage.database) == before
    assert await status(stage, first.stream_id) == "cancelled"
    assert [text for _, text in await stage.said()] == ["First.", "So far", "Stop that.", "Second."]


async def has_left(stage: Stage, started: Started) -> bool:
    return stage.runtime._services.rings.find(started.stream_id) is None


@requirement("R333")
async def test_rollback_leaves_the_turn_readable_and_tells_no_model_of_it(stage: Stage) -> None:
    stage.provider.add("Hello.")
    await stage.play("Hi.")
    first, hold = await running(stage, text="A wrong question.")
    stage.provider.add("Second.", "Third.")
    await asyncio.wait_for(stage.play("The right one.", on_busy="rollback"), 20)

    assert hold.closed
    assert await status(stage, first.stream_id) == "cancelled"
    assert [text for _, text in await stage.said()] == [
        "Hi.", "Hello.", "A wrong question.", "So far", "The right one.", "Second.",
    ]  # fmt: skip
    expected = ["Hi.", "Hello.", "The right one."]
    assert [message["content"] for message in told(stage.provider.requests[-1])] == expected
    await stage.play("And then?")
    told_then = [message["content"] for message in told(stage.provider.requests[-1])]
    assert told_then == [*expected, "Second.", "And then?"]


async def test_rollback_takes_a_whole_continued_turn_back(stage: Stage) -> None:
    pause = await paused(stage, "c1", text="A wrong question.")
    hold = Hold()
    stage.provider.add(["Berlin is", hold], "Second.")
    async with meanwhile(by_results(stage, pause, result("c1"))):
        await hold.reached.wait()
        await stage.play("The right one.", on_busy="rollback")
    assert [message["content"] for message in told(stage.provider.requests[-1])] == ["The right one."]
    assert [role for role, _ in await stage.said()] == ["user", "assistant", "tool", "assistant", "user", "assistant"]


async def test_rollback_of_a_turn_that_pauses_in_that_moment_takes_its_answers_along(shared_database: str) -> None:
    hold = Hold()
    async with (
        scripted(shared_database, [hold, *asks_for("c1")], database_pool_size=2) as stage,
        scripted(shared_database, "Second.", "Third.") as other,
    ):
        first = await start(stage, "A wrong question.", tools=[WEATHER])
        await asyncio.wait_for(hold.reached.wait(), 20)
        async with no_connections(stage, 2):
            hold.release()
            # The turn has stopped for its host, and waits to store that: it can't be cancelled any more.
            await until(partial(is_settling, stage, first))
            rollback = asyncio.create_task(other.play("The right one.", on_busy="rollback"))
            await until(partial(count_waiting, other, 1))
        done = await asyncio.wait_for(rollback, 20)
        await other.play("And then?")

        assert one(done, "final_response")["final_response_text"] == "Second."
        assert await other.pending() is None
        assert [role for role, _ in await other.said()][:4] == ["user", "assistant", "tool", "user"]
        first_told, then_told = map(told, other.provider.requests)
        assert [message["content"] for message in first_told] == ["The right one."]
        assert [message["content"] for message in then_told] == ["The right one.", "Second.", "And then?"]
        (sent,) = await rows(shared_database, "SELECT bool_and(not_sent) FROM messages WHERE position <= 3")
        assert sent[0] is True


async def is_settling(stage: Stage, started: Started) -> bool:
    ring = stage.runtime._services.rings.find(started.stream_id)
    return ring is not None and ring.sealed


@requirement("R106")
@pytest.mark.parametrize("on_busy", ["reject", "wait", "interrupt", "rollback"])
async def test_on_pause_reject_refuses_the_turn_with_the_request_and_keeps_the_pause(
    stage: Stage, on_busy: Any
) -> None:
    pause = await paused(stage, "c1")
    with pytest.raises(PauseHeldError) as refused:
        await start(stage, "Something else.", on_pause="reject", on_busy=on_busy)

    assert refused.value.details["pending_request"] == pause.to_json()
    assert await held(stage) == pause
    assert [role for role, _ in await stage.said()] == ["user", "assistant"]
    assert await waiting(stage) == 0
    stage.provider.add("Mild.")
    assert types(await by_results(stage, pause, result("c1")))[-1] == "final_response"
    stage.provider.add("Fine.")
    assert (await stage.play("Now?", on_pause="reject"))[-1]["final_response_text"] == "Fine."
