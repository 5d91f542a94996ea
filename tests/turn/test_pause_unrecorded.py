"""With conversational persistence off a pause holds as well as ever, and the conversation keeps no message of it."""

from collections.abc import AsyncIterator

import pytest

from tests.requirements import requirement
from tests.stage import WEATHER, Stage, result
from tests.turn.pausing import Answer, asks_for, by_results, by_resume, codes, held, paused, scripted, status, told

OFF = {"enable_conversational_persistence": False}
WAYS = pytest.mark.parametrize("way", [by_results, by_resume])


@pytest.fixture
async def off(shared_database: str) -> AsyncIterator[Stage]:
    async with scripted(shared_database, **OFF) as running:
        yield running


@requirement("R121", "R122", "R123", "R340")
@WAYS
@pytest.mark.parametrize("answered", [("c1",), ("c1", "c2")])
async def test_a_pause_is_continued_and_leaves_no_message(off: Stage, way: Answer, answered: tuple[str, ...]) -> None:
    pause = await paused(off, "c1", "c2")
    assert await off.messages() == []
    off.provider.add("Mild.")
    done = await way(off, pause, *map(result, answered))

    assert done[-1]["final_response_text"] == "Mild."
    assert [message["role"] for message in told(off.provider.requests[-1])] == ["user", "assistant", "tool", "tool"]
    assert await off.messages() == []


@requirement("R122", "R125", "R340")
async def test_a_new_turn_ends_the_pause_and_stores_nothing(off: Stage) -> None:
    pause = await paused(off, "c1")
    off.provider.add("Bye.")
    done = await off.play("Something else.", tools=[WEATHER])

    assert done[-1]["final_response_text"] == "Bye."
    assert await off.pending() is None
    assert await status(off, pause.stream_id) == "cancelled"
    assert codes(await by_results(off, pause, result("c1"))) == ["TOOL_ERROR"]
    assert await off.messages() == []
    assert [message["content"] for message in told(off.provider.requests[-1])] == ["Something else."]


@requirement("R124")
@WAYS
async def test_the_pause_is_pending_and_is_continued_on_any_process(shared_database: str, way: Answer) -> None:
    async with scripted(shared_database, **OFF) as stage:
        pause = await paused(stage, "c1")
        assert (await held(stage)).pause_id == pause.pause_id
    async with scripted(shared_database, "Mild.", **OFF) as other:
        pause = await held(other)
        assert (await way(other, pause, result("c1")))[-1]["final_response_text"] == "Mild."
        assert [message["role"] for message in told(other.provider.requests[-1])] == ["user", "assistant", "tool"]
        assert await other.messages() == []


@requirement("R127")
@WAYS
async def test_a_conversation_without_messages_takes_nothing_from_what_a_continuation_is_told(
    off: Stage, way: Answer
) -> None:
    first = await paused(off, "c1")
    off.provider.add(asks_for("c2"))
    await way(off, first, result("c1"))
    off.provider.add("Mild.")
    await way(off, await held(off), result("c2"))

    roles = [message["role"] for message in told(off.provider.requests[-1])]
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]
