"""Models over real HTTP: keys of the environment, fallbacks, reasoning and hops across processes, and the bill."""

from pathlib import Path
from typing import Any

import pytest

from tests.databases import rows
from tests.live.quick import TOOL
from tests.mock_model import Answer, ModelServer
from tests.providers.anthropic_wire import block, delta, ending, start, stopped, wire
from tests.servers import Server, Servers

KEY = "sk-ant-of-the-test-0123456789"


def providers_file(folder: Path, mock: ModelServer) -> str:
    path = folder / "providers.yaml"
    path.write_text(
        f"""
providers:
  anthropic: {{base_url: {mock.base_url}}}
  house:
    base_url: {mock.base_url}
    models:
      small: {{prices: {{input: 1, output: 2}}}}
      big: {{prices: {{input: 10, output: 20}}}}
limits: {{attempts: 1}}
fallbacks: ["house:big"]
""",
        encoding="utf-8",
    )
    return str(path)


def anthropic_answer(*documents: Any) -> Answer:
    raw = wire(*documents, {"type": "message_stop"}).decode()
    return {"bare": True, "steps": [{"raw": raw}]}


def thinking_call() -> Answer:
    return anthropic_answer(
        start(input_tokens=9, output_tokens=1),
        block(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="I need the weather."),
        delta(0, "signature_delta", signature="c2lnbmVk"),
        stopped(0),
        block(1, type="tool_use", id="toolu_1", name="get_weather", input={}),
        delta(1, "input_json_delta", partial_json='{"city": "Berlin"}'),
        stopped(1),
        ending("tool_use", output_tokens=20),
    )


def spoken(text: str) -> Answer:
    return anthropic_answer(
        start(input_tokens=30, output_tokens=1),
        block(0, type="text", text=""),
        delta(0, "text_delta", text=text),
        stopped(0),
        ending("end_turn", output_tokens=4),
    )


async def usage_of(server: Server, stream_id: str) -> Any:
    return await server.get(f"/v1/streams/{stream_id}/usage")


async def test_reasoning_goes_back_to_its_model_on_another_process_after_a_kill(
    servers: Servers, database: str, mock: ModelServer, tmp_path: Path
) -> None:
    mock.script(thinking_call(), spoken("It is mild."))
    settings = {
        "FERMATA_PROVIDERS_FILE": providers_file(tmp_path, mock),
        "ANTHROPIC_API_KEY": KEY,
        "FERMATA_DEFAULT_MODEL": "anthropic:claude-x",
    }
    first = await servers.start(database, **settings)
    frames = await first.turn("c", "Weather?", tools=[TOOL])
    request = next(frame.data for frame in frames if frame.event == "tool_call_request")
    await first.kill()

    second = await servers.start(database, **settings)
    answered = await second.results(
        request["stream_id"], {"tool_call_id": request["tool_calls"][0]["id"], "output": "mild"}
    )

    assert answered[-2].data["final_response_text"] == "It is mild."
    asked = await mock.requests(2)
    assert {entry["headers"]["x-api-key"] for entry in asked} == {KEY}
    spoken_before = asked[1]["body"]["messages"][1]["content"]
    assert spoken_before[0] == {"type": "thinking", "thinking": "I need the weather.", "signature": "c2lnbmVk"}
    assert spoken_before[1]["type"] == "tool_use"
    used = await usage_of(second, request["stream_id"])
    assert [(entry["model"], entry["prompt_tokens"], entry["completion_tokens"]) for entry in used["requests"]] == [
        ("anthropic:claude-x", 9, 20),
        ("anthropic:claude-x", 30, 4),
    ]
    assert answered[-2].data["usage"]["total_tokens"] == 63


@pytest.mark.slow
async def test_a_continuation_begins_with_the_model_that_served_before_the_pause(
    servers: Servers, database: str, mock: ModelServer, tmp_path: Path
) -> None:
    mock.script({"status": 500, "body": {"error": {"message": "down"}}}, model="small")
    mock.script(
        {"steps": [{"call": {"name": "get_weather", "arguments": {"city": "Berlin"}}}]},
        {"steps": [{"text": "Mild."}, {"usage": {"prompt": 100, "completion": 10}}]},
        model="big",
    )
    settings = {"FERMATA_PROVIDERS_FILE": providers_file(tmp_path, mock), "FERMATA_DEFAULT_MODEL": "house:small"}
    first = await servers.start(database, **settings)
    frames = await first.turn("c", "Weather?", tools=[TOOL])
    request = next(frame.data for frame in frames if frame.event == "tool_call_request")
    await first.kill()

    second = await servers.start(database, **settings)
    await second.results(request["stream_id"], {"tool_call_id": request["tool_calls"][0]["id"], "output": "mild"})

    assert [entry["body"]["model"] for entry in await mock.requests(3)] == ["small", "big", "big"]
    used = await usage_of(second, request["stream_id"])
    told = [(entry["model"], entry["hop"], entry["outcome"], entry["status"]) for entry in used["requests"]]
    assert told == [
        ("house:small", 0, "failed", 500),
        ("house:big", 1, "delivered", None),
        ("house:big", 1, "delivered", None),
    ]
    assert used["requests"][2]["cost_usd"] == (100 * 10 + 10 * 20) / 1_000_000
    whole = await second.get("/v1/conversations/c/usage")
    assert {entry["model"]: (entry["requests"], entry["failed_requests"]) for entry in whole["models"]} == {
        "house:big": (2, 0),
        "house:small": (1, 1),
    }

    await second.client.delete("/v1/conversations/c")
    assert await rows(database, "SELECT * FROM usage_ledger") == []


@pytest.mark.slow
async def test_a_new_turn_begins_with_the_model_that_is_asked_for_again(
    servers: Servers, database: str, mock: ModelServer, tmp_path: Path
) -> None:
    mock.script({"status": 500, "body": "down"}, model="small")
    settings = {"FERMATA_PROVIDERS_FILE": providers_file(tmp_path, mock), "FERMATA_DEFAULT_MODEL": "house:small"}
    server = await servers.start(database, **settings)

    await server.turn("c", "One.")
    await server.turn("c", "Two.")

    assert [entry["body"]["model"] for entry in await mock.requests(3)] == ["small", "big", "small"]
