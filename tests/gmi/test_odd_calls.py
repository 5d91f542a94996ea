"""Calls whose names, ids and arguments hold what no database takes: made fit for it, told, and answered."""

from app.domain.messages import ToolCall
from tests.stage import Stage


async def test_a_call_with_signs_that_cannot_be_stored_is_made_fit_and_answered(stage: Stage) -> None:
    odd = ToolCall("c\x00\ud83d1", "get\x00weather\ud83d", {"\x00": "\ud800"}, extra={"kept": "\x00"})
    cut = ToolCall("c2", "look\x00up", invalid='{"a": "\x00\ud83d')
    stage.provider.add([odd, cut], "Done.")

    chunks = await stage.play("Go on.")

    assert chunks[-1]["final_response_text"] == "Done."
    told = stage.provider.requests[1].messages[-3:]
    assert [call.name for call in told[0].tool_calls] == ["get\ufffdweather\ufffd", "look\ufffdup"]
    assert told[0].tool_calls[0].arguments == {"\ufffd": "\ufffd"}
    assert [answer.tool_call_id for answer in told[1:]] == [call.id for call in told[0].tool_calls]
    assert all(answer.is_error for answer in told[1:])
