"""The last step of a turn, behind the limit of its tool rounds."""

from app.providers.scripted import call
from tests.stage import WEATHER, Stage, types


async def test_calls_that_a_model_makes_though_it_may_not_are_neither_told_nor_run(stage: Stage) -> None:
    rounds = [[call("current_time", id=f"c{number}")] for number in range(5)]
    stage.provider.add(*rounds, ["That is all. ", call("current_time", id="c5"), call("get_weather", id="c6")])
    chunks = await stage.play("Go on and on.", tools=[WEATHER])

    assert types(chunks).count("tool_call_request") == 5
    assert chunks[-1]["final_response_text"] == "That is all. "
    assert [made["id"] for made in chunks[-1]["final_tool_calls"]] == ["c0", "c1", "c2", "c3", "c4"]
    assert stage.provider.requests[-1].tools == ()
    assert await stage.pending() is None
