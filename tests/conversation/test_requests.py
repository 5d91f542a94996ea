"""Each request to a model is one that strict servers take: mended where what is stored is wrong, else stable."""

import json
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from app.domain.messages import Message, ToolCall
from app.providers.base import ModelRequest
from app.providers.scripted import Piece
from tests.conversation.talking import add, completed, has_said, last_told, routing, said, talking
from tests.databases import rows
from tests.requirements import requirement
from tests.stage import WEATHER, result

RAIN = ToolCall("w1", "get_weather", {"city": "Oslo"})


def asks_for_weather(request: ModelRequest) -> list[Piece] | str:
    return [RAIN] if request.tools and request.messages[-1].content == "weather" else "Ok."


@requirement("R58")
async def test_what_is_stored_wrong_is_mended_logged_and_counted(shared_database: str) -> None:
    async with talking(shared_database) as stage:
        await has_said(stage, *said(1))
        lost = Message("assistant", None, tool_calls=(ToolCall("a", "look_up"), ToolCall("b", "look_up")))
        await add(shared_database, Message("tool", "orphan", tool_call_id="x"), lost, Message("assistant", ""))
        with capture_logs() as logs:
            chunks = await stage.play("And now?")
        assert completed(chunks)
        assert [message.role for message in stage.provider.requests[0].messages[1:]] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "user",
        ]
        assert routing(chunks)["history"]["repairs"] == 4
        (line,) = [entry for entry in logs if entry["event"] == "history.repaired"]
        assert (line["orphan_result"], line["lost_result"], line["empty_message"]) == (1, 2, 1)


async def test_a_continuations_request_is_mended_as_well(shared_database: str) -> None:
    async with talking(shared_database, asks_for_weather) as stage:
        paused = await stage.play("weather", tools=[WEATHER])
        found = await rows(shared_database, "SELECT snapshot::text AS text FROM pending_external_tool_requests")
        snapshot = json.loads(found[0]["text"])
        snapshot["messages"].insert(1, {"role": "tool", "content": "orphan", "tool_call_id": "x"})
        changed = json.dumps(snapshot)
        await rows(shared_database, "UPDATE pending_external_tool_requests SET snapshot = $1", changed)
        with capture_logs() as logs:
            chunks = await stage.pass_results(paused[-1]["stream_id"], result("w1", "rain"))
        assert completed(chunks)
        assert last_told(stage) == ["weather", "None", "rain"]
        assert [entry["repairs"] for entry in logs if entry["event"] == "request.repaired"] == [1]


@pytest.mark.parametrize("rolling", [False, True], ids=["plain", "summary"])
async def test_each_turns_request_begins_with_that_of_the_turn_before_it(
    shared_database: str, *, rolling: bool
) -> None:
    given = {"enabled": rolling, "min_messages_to_summarize": 2, "tail_messages_to_keep": 2}
    async with talking(shared_database, asks_for_weather, rolling_summary_compaction=given) as stage:
        await has_said(stage, *said(9))
        firsts = []
        for text in ("Hello.", "weather", "And then?", "Bye."):
            firsts.append(len(stage.provider.requests))
            chunks = await stage.play(text, tools=[WEATHER])
            if text == "weather":
                await stage.pass_results(chunks[-1]["stream_id"], result("w1", "rain"))
        # The first request may be the summarizer's, whose cooldown then lasts for the rest.
        told = [stage.provider.requests[first + (rolling and first == 0)].messages for first in firsts]
        for earlier, later in pairwise(told):
            assert later[: len(earlier)] == earlier
