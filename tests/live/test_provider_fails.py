"""A provider that goes wrong in any way: the turn ends with an error that says how, and the next turn works."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.live.quick import TOOL
from tests.mock_model import ModelServer
from tests.servers import Server, Servers
from tests.sse import Frame, check_whole, only, text_of

TEXT = {"text": "It is "}
FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "refuses the key": ({"status": 401, "body": {"error": {"message": "Incorrect API key provided"}}}, "auth"),
    "is asked too often": ({"status": 429, "body": {"error": {"message": "Slow down"}}}, "rate_limited"),
    "fails": ({"status": 500, "body": {"error": {"message": "Boom"}}}, "server"),
    "is overloaded": ({"status": 503, "body": "<html>busy</html>"}, "overloaded"),
    "refuses the request": ({"status": 400, "body": {"error": {"message": "No such parameter"}}}, "invalid_request"),
    "sends a page": ({"status": 200, "body": "<html>Welcome</html>"}, "protocol"),
    "sends nonsense": ({"steps": [{"raw": "data: {this is no JSON}\n\n"}], "bare": True}, "protocol"),
    "sends nonsense after text": ({"steps": [TEXT, {"raw": "data: {nonsense\n\n"}], "bare": True}, "protocol"),
    "tells of an error in the stream": (
        {"steps": [TEXT, {"event": {"error": {"message": "It broke", "type": "server_error"}}}], "bare": True},
        "server",
    ),
    "resets the connection": ({"steps": [TEXT, {"reset": True}], "bare": True}, "transport"),
    "cuts the response": ({"steps": [TEXT, {"cut": True}], "bare": True}, "transport"),
    "ends in the middle": ({"steps": [TEXT, {"eof": True}], "bare": True}, "truncated"),
    "says nothing": ({"steps": [{"eof": True}], "bare": True}, "truncated"),
}


def check_failed(frames: list[Frame], reason: str) -> None:
    """Check that a turn ended with the provider's error, told twice with the same words."""
    check_whole(frames)
    error, final = only(frames, "error").data, only(frames, "final_response").data
    assert (error["code"], error["details"]["reason"]) == ("LLM_PROVIDER_ERROR", reason)
    assert len(error["message"]) > 10
    assert "sk-test" not in str(frames)
    assert (final["error"]["code"], final["error"]["message"]) == (error["code"], error["message"])
    assert frames[-1].data["status"] == "failed"
    assert frames.index(only(frames, "error")) < frames.index(only(frames, "final_response"))


@pytest.mark.parametrize("case", FAILURES)
async def test_a_provider_that_goes_wrong_ends_the_turn_and_not_the_conversation(
    impatient: Server, model: ModelServer, case: str
) -> None:
    answer, reason = FAILURES[case]
    number = list(FAILURES).index(case)
    options = {"model": f"openai:mock-{number}"}
    model.script(answer)
    frames = await impatient.turn(f"fails-{number}", "Hello", options=options)

    check_failed(frames, reason)
    whole = await impatient.get(f"/v1/streams/{frames[0].data['stream_id']}")
    assert (whole["status"], whole["error"]["code"]) == ("failed", "LLM_PROVIDER_ERROR")
    again = await impatient.turn(f"fails-{number}", "And now?", options=options)
    check_whole(again)
    assert text_of(again) == "You said: And now?"


async def test_as_one_object_the_failure_is_told_by_its_status(impatient: Server, model: ModelServer) -> None:
    model.script(FAILURES["fails"][0])
    response = await impatient.client.post(
        "/v1/conversations/object/turns", json={"input": "Hello"}, headers={"Accept": "application/json"}
    )

    assert response.status_code == httpx.codes.OK
    assert (response.json()["status"], response.json()["error"]["code"]) == ("failed", "LLM_PROVIDER_ERROR")
    check_whole(await impatient.turn("object", "And now?"))


async def test_a_continuation_whose_provider_goes_wrong_keeps_the_results(
    impatient: Server, model: ModelServer
) -> None:
    request = only(await impatient.turn("kept", "What is the weather?", tools=[TOOL]), "tool_call_request").data
    model.script(FAILURES["fails"][0])
    frames = await impatient.results(
        request["stream_id"], {"tool_call_id": request["tool_calls"][0]["id"], "output": "21 degrees"}
    )

    check_failed(frames, "server")
    stored = (await impatient.get("/v1/conversations/kept/messages"))["items"]
    assert [(message["role"], message["content"]) for message in stored] == [
        ("user", "What is the weather?"), ("assistant", None), ("tool", "21 degrees"),
    ]  # fmt: skip
    assert await impatient.get("/v1/conversations/kept/pending-request") is None
    check_whole(await impatient.turn("kept", "And now?"))


async def test_a_provider_that_is_down_is_told_as_such_and_works_when_it_is_back(
    servers: Servers, database: str, unused_tcp_port: int
) -> None:
    server = await servers.start(database, f"http://127.0.0.1:{unused_tcp_port}/v1")
    check_failed(await server.turn("down", "Hello"), "connect")

    async with ModelServer(unused_tcp_port) as back:
        again = await server.turn("down", "And now?")
        check_whole(again)
        assert text_of(again) == "You said: And now?"
        assert [request["violations"] for request in await back.requests(1)] == [[]]


async def test_a_failing_turn_does_not_disturb_another_conversation(impatient: Server, model: ModelServer) -> None:
    model.script({"steps": [{"text": "Slow"}, {"wait": 0.2}, {"text": "ly."}]}, model="mock-slow")
    model.script(FAILURES["resets the connection"][0], model="mock-bad")
    slow, bad = await asyncio.gather(
        impatient.turn("slow", "Hello", options={"model": "openai:mock-slow"}),
        impatient.turn("bad", "Hello", options={"model": "openai:mock-bad"}),
    )
    check_failed(bad, "transport")
    assert text_of(slow) == "Slowly."
