"""Observers inside the process see a stream's chunks as they were made, before the guardrails."""

import asyncio

from app.domain.chunks import FinalResponseMarker, StepFinished, StreamChunk, TextDelta, UsageUpdate
from app.domain.usage import Usage
from app.guardrails.registry import Guards
from app.streaming.manager import MOST_WAITING, AsyncStreamClientBridge
from app.turn.delivery.requests import HeldRequests
from app.turn.delivery.transform import to_stream
from tests.databases import rows
from tests.guardrails.acting import OutputOnly, blocks
from tests.requirements import requirement
from tests.stage import ADA, CHAT, running_stage

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


async def test_an_observer_that_does_not_read_is_left_behind() -> None:
    bridge = AsyncStreamClientBridge()
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
