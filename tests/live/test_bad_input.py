"""Whatever is sent, the answer says what is wrong with it, and the conversation's next turn works."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from tests.live.quick import TOOL
from tests.mock_model import ModelServer
from tests.servers import Server
from tests.sse import check_whole, only, text_of

JSON = {"Content-Type": "application/json"}
Pair = tuple[Server, Server]


def told(response: httpx.Response) -> tuple[int, str]:
    """Give status and code of a refusal, which is a problem document with a sentence in it."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    problem = response.json()
    assert problem["status"] == response.status_code
    assert len(problem["detail"]) > 10
    return response.status_code, problem["code"]


async def works(server: Server, conversation: str) -> None:
    """Check that a turn of the conversation goes through."""
    frames = await server.turn(conversation, "And now?")
    check_whole(frames)
    assert text_of(frames) == "You said: And now?"


BODIES: dict[str, tuple[bytes, int, str, str]] = {
    "not JSON": (b"{input: hello}", 400, "SYS_PARSING_ERROR", "not JSON"),
    "nothing": (b"", 400, "SYS_PARSING_ERROR", "empty"),
    "half a document": (b'{"input": "hel', 400, "SYS_PARSING_ERROR", "not JSON"),
    "not UTF-8": (b'{"input": "\xff\xfe"}', 400, "SYS_PARSING_ERROR", "UTF-8"),
    "not a number": (b'{"input": "x", "options": {"temperature": NaN}}', 400, "SYS_PARSING_ERROR", "NaN"),
    "a list": (b"[1, 2]", 422, "SYS_VALIDATION_ERROR", "object"),
    "no input": (b"{}", 422, "SYS_VALIDATION_ERROR", "input"),
    "empty input": (b'{"input": ""}', 422, "SYS_VALIDATION_ERROR", "input"),
    "blank input": (b'{"input": " \\n\\t "}', 422, "SYS_VALIDATION_ERROR", "input"),
    "no parts": (b'{"input": []}', 422, "SYS_VALIDATION_ERROR", "input"),
    "a number for text": (b'{"input": 5}', 422, "SYS_VALIDATION_ERROR", "input"),
    "text for a number": (b'{"input": "x", "options": {"temperature": "hot"}}', 422, "SYS_VALIDATION_ERROR", "temper"),
    "an unknown field": (b'{"input": "x", "inptu": "y"}', 422, "SYS_VALIDATION_ERROR", "inptu"),
    "an unknown option": (b'{"input": "x", "options": {"temp": 1}}', 422, "SYS_VALIDATION_ERROR", "options.temp"),
    "a tool without a name": (b'{"input": "x", "tools": [{}]}', 422, "SYS_VALIDATION_ERROR", "tools[0].name"),
    "a tool of the runtime's": (
        b'{"input": "x", "tools": [{"name": "current_time"}]}', 422, "SYS_VALIDATION_ERROR", "current_time",
    ),
    "an unknown persona": (b'{"input": "x", "persona_id": "nobody"}', 404, "GMI_PERSONA_NOT_FOUND", "nobody"),
    "an unknown provider": (
        b'{"input": "x", "options": {"model": "nowhere:m"}}', 503, "LLM_PROVIDER_UNAVAILABLE", "nowhere",
    ),
    "too much": (b'{"input": "%b"}' % (b"x" * 11_000_000), 413, "SYS_PAYLOAD_TOO_LARGE", "bytes"),
}  # fmt: skip


@pytest.mark.parametrize("case", BODIES)
async def test_a_turn_that_can_not_be_is_refused_with_a_sentence(pair: Pair, model: ModelServer, case: str) -> None:
    body, status, code, word = BODIES[case]
    name = f"bad-{list(BODIES).index(case)}"
    response = await pair[0].client.post(f"/v1/conversations/{name}/turns", content=body, headers=JSON)

    assert told(response) == (status, code)
    assert word in response.json()["detail"]
    assert await model.requests(0) == []
    assert (await pair[0].client.get(f"/v1/conversations/{name}")).status_code == httpx.codes.NOT_FOUND
    await works(pair[0], name)


@pytest.mark.parametrize("name", ["with%20space", "a" * 129, "%C3%A9", "semi;colon"])
async def test_a_conversation_name_that_can_not_be_is_refused(pair: Pair, name: str) -> None:
    response = await pair[0].client.post(f"/v1/conversations/{name}/turns", json={"input": "x"})
    assert told(response) == (422, "SYS_VALIDATION_ERROR")


UNKNOWN_STREAM = "st_" + "0" * 44
LOOK_UPS: dict[str, tuple[str, str, int]] = {
    "conversation": ("GET", "/v1/conversations/not-there", 404),
    "messages": ("GET", "/v1/conversations/not-there/messages", 404),
    "pause": ("GET", "/v1/conversations/not-there/pending-request", 404),
    "erase": ("DELETE", "/v1/conversations/not-there", 404),
    "stream": ("GET", f"/v1/streams/{UNKNOWN_STREAM}", 404),
    "events": ("GET", f"/v1/streams/{UNKNOWN_STREAM}/events", 404),
    "nonsense for a stream": ("GET", "/v1/streams/nonsense/events", 404),
    "cursor": ("GET", "/v1/conversations?cursor=zz", 400),
    "persona": ("GET", "/v1/personas/nobody", 404),
    "address": ("GET", "/v1/nothing", 404),
    "method": ("PUT", "/v1/conversations", 405),
}


@pytest.mark.parametrize("case", LOOK_UPS)
async def test_what_is_not_there_is_told_as_such(pair: Pair, case: str) -> None:
    method, path, status = LOOK_UPS[case]
    response = await pair[0].client.request(method, path)
    codes = {400: "SYS_PARSING_ERROR", 405: "SYS_METHOD_NOT_SUPPORTED"}
    expected = "GMI_PERSONA_NOT_FOUND" if case == "persona" else codes.get(status, "SYS_RESOURCE_NOT_FOUND")
    assert told(response) == (status, expected)


async def test_a_foreign_event_id_is_refused_and_the_own_one_is_not(pair: Pair) -> None:
    frames = await pair[0].turn("cursors", "Hello")
    events = f"/v1/streams/{frames[0].data['stream_id']}/events"
    for bad in ("abc", "1", "-1-1", "999999999-1", f"{frames[0].fence}-x"):
        response = await pair[0].client.get(events, headers={"Last-Event-ID": bad})
        assert told(response) == (400, "SYS_PARSING_ERROR"), bad
    assert (await pair[0].client.get(events, headers={"Last-Event-ID": frames[-1].id})).status_code == 204
    await works(pair[0], "cursors")


# Results ------------------------------------------------------------------------------------------------------------


async def paused(server: Server, name: str) -> dict[str, Any]:
    return only(await server.turn(name, "What is the weather?", tools=[TOOL]), "tool_call_request").data


def good(request: dict[str, Any]) -> dict[str, Any]:
    return {"tool_call_id": request["tool_calls"][0]["id"], "output": "21"}


RESULTS: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], int, str]] = {
    "none": (lambda _: {"results": []}, 422, "SYS_VALIDATION_ERROR"),
    "no list": (lambda _: {}, 422, "SYS_VALIDATION_ERROR"),
    "for another call": (lambda _: {"results": [{"tool_call_id": "x", "output": 1}]}, 409, "SYS_INVALID_STATE"),
    "one of which is for another call": (
        lambda request: {"results": [good(request), {"tool_call_id": "x", "output": 1}]}, 409, "SYS_INVALID_STATE",
    ),
    "two for one call": (lambda request: {"results": [good(request)] * 2}, 422, "SYS_VALIDATION_ERROR"),
    "without output": (
        lambda request: {"results": [{"tool_call_id": good(request)["tool_call_id"]}]}, 422, "SYS_VALIDATION_ERROR",
    ),
    "for another pause": (
        lambda request: {"results": [good(request)], "pause_id": "pause_x"}, 409, "SYS_INVALID_STATE",
    ),
    "with an unknown field": (
        lambda request: {"results": [{**good(request), "extra": 1}]}, 422, "SYS_VALIDATION_ERROR",
    ),
    "too large": (
        lambda request: {"results": [{**good(request), "output": "x" * 5_000_000}]}, 413, "SYS_PAYLOAD_TOO_LARGE",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RESULTS)
async def test_results_that_do_not_fit_are_refused_and_the_pause_stays(pair: Pair, case: str) -> None:
    make, status, code = RESULTS[case]
    name = f"results-{list(RESULTS).index(case)}"
    request = await paused(pair[0], name)
    pending = await pair[0].get(f"/v1/conversations/{name}/pending-request")
    body = make(request)
    on_stream = await pair[0].client.post(f"/v1/streams/{request['stream_id']}/tool-results", json=body)
    by_resume = await pair[0].client.post(
        f"/v1/conversations/{name}/resume", json={"pause_id": request["pause_id"], **body}
    )

    assert told(on_stream) == (status, code)
    assert told(by_resume) == (status, code)
    assert await pair[0].get(f"/v1/conversations/{name}/pending-request") == pending
    check_whole(await pair[0].results(request["stream_id"], good(request)))
    await works(pair[0], name)


async def test_results_that_come_twice_are_refused_the_second_time(pair: Pair) -> None:
    request = await paused(pair[0], "twice")
    await pair[0].results(request["stream_id"], good(request))
    again = await pair[0].client.post(
        f"/v1/streams/{request['stream_id']}/tool-results", json={"results": [good(request)]}
    )
    resumed = await pair[0].client.post(
        "/v1/conversations/twice/resume", json={"pause_id": request["pause_id"], "results": [good(request)]}
    )

    assert told(again) == (409, "TOOL_ERROR")
    assert again.json()["reason"] == "ended"
    assert told(resumed) == (409, "SYS_INVALID_STATE")
    await works(pair[0], "twice")


async def test_results_for_what_is_not_there_are_refused(pair: Pair) -> None:
    body = {"pause_id": "pause_x", "results": [{"tool_call_id": "x", "output": 1}]}
    await pair[0].turn("quiet", "Hello")
    answers = [
        await pair[0].client.post(path, json=body)
        for path in (
            f"/v1/streams/{UNKNOWN_STREAM}/tool-results",
            "/v1/conversations/not-there/resume",
            "/v1/conversations/quiet/resume",
        )
    ]
    assert [told(answer) for answer in answers] == [
        (404, "SYS_RESOURCE_NOT_FOUND"), (404, "SYS_RESOURCE_NOT_FOUND"), (409, "SYS_INVALID_STATE"),
    ]  # fmt: skip
    await works(pair[0], "quiet")


async def test_a_second_turn_while_one_runs_is_refused_and_the_first_goes_on(pair: Pair, model: ModelServer) -> None:
    model.script({"steps": [{"text": "One, "}, {"gate": "refused"}, {"text": "two."}]})
    async with pair[0].stream("POST", "/v1/conversations/busy/turns", json={"input": "Count."}) as live:
        await live.until("text_delta")
        refused = await pair[1].client.post("/v1/conversations/busy/turns", json={"input": "Quick!"})
        model.open("refused")
        frames = await live.rest()

    assert told(refused) == (409, "CONVERSATION_BUSY")
    assert refused.json()["stream_id"] == frames[0].data["stream_id"]
    assert text_of(frames) == "One, two."
    await works(pair[0], "busy")


async def test_a_hundred_bad_requests_at_once_leave_the_service_as_it_was(pair: Pair) -> None:
    async def bad(number: int) -> httpx.Response:
        body = [*BODIES.values()][number % (len(BODIES) - 1)][0]
        return await pair[0].client.post("/v1/conversations/crowd/turns", content=body, headers=JSON)

    sending: list[Awaitable[httpx.Response]] = [bad(number) for number in range(100)]
    assert {response.status_code for response in await asyncio.gather(*sending)} <= {400, 404, 413, 422, 503}
    await works(pair[0], "crowd")
    assert json.loads((await pair[0].client.get("/readyz")).content)["status"] == "ok"
