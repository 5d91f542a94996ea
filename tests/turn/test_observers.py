"""Observers inside the process see a stream's chunks as they were made, before the guardrails."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from app.domain.chunks import FinalResponseMarker, StepFinished, StreamChunk, TextDelta, UsageUpdate
from app.domain.errors import ProviderError
from app.domain.ids import row_key
from app.domain.turn import OperationKind
from app.domain.usage import Usage
from app.guardrails.registry import Guards
from app.providers.scripted import Hold, call
from app.streaming.manager import MOST_WAITING, AsyncStreamClientBridge
from app.turn.delivery.requests import HeldRequests
from app.turn.delivery.transform import to_stream
from app.turn.orchestrator.execution import Emissions, read_back
from app.turn.orchestrator.operation import Identity, Operation
from tests.databases import rows
from tests.guardrails.acting import OutputOnly, blocks
from tests.requirements import requirement
from tests.stage import ADA, CHAT, WEATHER, Stage, running_stage

SECRET = "the password is swordfish"


@requirement("R242", "R244")
async def test_an_observer_gets_the_chunks_from_before_the_guardrails_and_nobody_else_does(database: str) -> None:
    guards = Guards([OutputOnly(blocks("swordfish"))], mode="hold")
    async with running_stage(database, guards=guards) as stage:
        stage.provider.add([SECRET])
        async with stage.runtime.observe(ADA, CHAT) as observer:
            chunks = await stage.play("What is it?")
            async with asyncio.timeout(30):
                seen = [chunk async for chunk in observer]
    assert SECRET in "".join(chunk.fields["text_delta"] for chunk in seen if chunk.type == "text_delta")
    assert [chunk.type for chunk in seen].count("final_response") == 1
    assert "swordfish" not in str(chunks)
    assert all(b"swordfish" not in row["frames"] for row in await rows(database, "SELECT frames FROM stream_events"))


def clients(stage: Stage) -> int:
    """Give how many clients the conversation's streams have: the facade for what runs, and observers."""
    manager = stage.runtime._services.streaming
    return len(manager._facade) + len(manager._observers.get(row_key("", CHAT), ()))


async def until_no_client(stage: Stage) -> None:
    async with asyncio.timeout(30):
        while clients(stage):  # noqa: ASYNC110 - the operation's task ends
            await asyncio.sleep(0.01)


@requirement("R243")
async def test_the_facade_reads_a_stream_back_as_one_client_of_it(database: str) -> None:
    async with running_stage(database) as stage:
        manager, hold = stage.runtime._services.streaming, Hold()
        stage.provider.add(["It is ", hold, "late."])
        assert clients(stage) == 0
        turn = asyncio.create_task(stage.play("What time is it?"))
        await hold.reached.wait()
        assert clients(stage) == 1
        async with stage.runtime.observe(ADA, CHAT):
            assert clients(stage) == 2
        # Whatever the manager hands to its clients reaches the host: the facade has no other way to the orchestrator.
        (operation,) = manager._facade
        manager.push(operation, row_key("", CHAT), StreamChunk("text_delta", {"text_delta": "very "}))
        hold.release()
        chunks = await turn
        await until_no_client(stage)
    assert [chunk["text_delta"] for chunk in chunks if chunk["type"] == "text_delta"] == ["It is ", "very ", "late."]


@requirement("R243")
@pytest.mark.parametrize("how", ["is cancelled", "fails", "is blocked", "pauses"])
async def test_however_an_operation_ends_its_stream_has_no_client_left(database: str, how: str) -> None:
    guards = Guards([OutputOnly(blocks("swordfish"))])
    async with running_stage(database, guards=guards) as stage:
        hold = Hold()
        then: dict[str, Any] = {
            "is cancelled": "late",
            "fails": ProviderError("it broke", reason="server", provider="scripted"),
            "is blocked": SECRET,
            "pauses": call("get_weather", {"city": "Rome"}, id="call_1"),
        }
        stage.provider.add(["It is ", hold, then[how]])
        turn = asyncio.create_task(stage.play("What is it?", tools=[WEATHER]))
        await hold.reached.wait()
        assert clients(stage) == 1
        if how == "is cancelled":
            view = await stage.runtime.get_conversation(ADA, CHAT)
            await stage.runtime.cancel(ADA, str(view.active_stream_id))
        hold.release()
        await turn
        await until_no_client(stage)


@requirement("R243")
async def test_an_operation_that_runs_here_again_keeps_its_client_when_its_lost_run_ends(database: str) -> None:
    async def texts_of(texts: Sequence[str]) -> Emissions:
        for text in texts:
            yield StreamChunk("text_delta", {"text_delta": text})

    async def saying(*texts: str) -> Emissions:
        return texts_of(texts)

    async with running_stage(database) as stage:
        services, identity = stage.runtime._services, Identity(ADA, CHAT, CHAT, "st_1", "turn_1")
        lost, again = (Operation(services, OperationKind.TURN, identity) for _ in range(2))
        again.id = lost.id
        async with read_back(again, partial(saying, "b", "c")) as new:
            async with read_back(lost, partial(saying, "a", "never")) as old:
                heard = [await anext(old), await anext(new)]
            heard += [said async for said in new]
    assert [said.fields["text_delta"] for said in heard if isinstance(said, StreamChunk)] == ["a", "b", "c"]


async def test_an_observer_that_does_not_read_is_left_behind() -> None:
    bridge = AsyncStreamClientBridge[StreamChunk](lambda said: said.chunks)
    for number in range(MOST_WAITING + 5):
        bridge.hand(StreamChunk("text_delta", {"text_delta": str(number)}))
    assert bridge.closed
    assert len([chunk async for chunk in bridge]) == MOST_WAITING


@requirement("R245")
def test_what_is_handed_on_is_a_stream_chunk_or_nothing() -> None:
    held = HeldRequests()
    shown = to_stream(TextDelta("a"), held)
    assert isinstance(shown, StreamChunk)
    assert shown.type == "text_delta"
    for chunk in (UsageUpdate(Usage()), StepFinished(0, "a", "stop", "p", "m"), FinalResponseMarker()):
        assert to_stream(chunk, held) is None
