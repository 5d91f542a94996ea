"""A host that runs its own tools over HTTP: at any depth, once each, and through cuts."""

from collections.abc import AsyncIterator
from socket import socket
from typing import Any

import httpx
import pytest

from app.client import Connection, Event, HostTool, RefusedError, ToolMissingError, run_turn_with_tools
from tests.client.cutting import Cutting
from tests.mock_model import ModelServer
from tests.requirements import requirement
from tests.servers import Server

TURN = {"input": "What is the weather?"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Weather:
    """A host's tool that keeps the cities it was asked for."""

    def __init__(self, answer: Any = "mild") -> None:
        self.asked: list[str] = []
        self.answer = answer
        self.tool = HostTool("get_weather", self.run, "Tell the weather of a city", SCHEMA)

    async def run(self, city: str) -> Any:
        self.asked.append(city)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def calls(*cities: str, name: str = "get_weather") -> dict[str, Any]:
    """Make a model's answer that calls a tool for each city."""
    return {"steps": [{"call": {"name": name, "arguments": {"city": city}, "id": f"call-{city}"}} for city in cities]}


def says(text: str) -> dict[str, Any]:
    return {"steps": [{"text": text}]}


async def all_of(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


def answers(request: dict[str, Any]) -> list[tuple[str, str]]:
    """Give the results that a model was told, in their order."""
    told = request["body"]["messages"]
    return [(message["tool_call_id"], message["content"]) for message in told if message["role"] == "tool"]


def check_events(events: list[Event]) -> None:
    """See that the events of each operation came once and in order, and that the last one is its end."""
    seen: dict[str, list[int]] = {}
    for event in events:
        assert event.id is not None
        fence, _, number = event.id.partition("-")
        seen.setdefault(fence, []).append(int(number))
    assert list(seen) == sorted(seen, key=int)
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in seen.values())
    assert events[-1].type == "end"


@requirement("R234")
async def test_tools_are_run_at_any_depth_until_there_is_an_answer(
    connection: Connection, mock: ModelServer, chat: str
) -> None:
    weather = Weather({"degrees": 21})
    mock.script(calls("Berlin"), calls("Rome", "Oslo"), calls("Bonn"), says("Mild everywhere."))
    events = await all_of(run_turn_with_tools(connection, chat, TURN, [weather.tool]))

    assert weather.asked == ["Berlin", "Rome", "Oslo", "Bonn"]
    check_events(events)
    (final,) = [event for event in events if event.type == "final_response"]
    assert final.data["final_response_text"] == "Mild everywhere."
    assert [event.data["status"] for event in events if event.type == "end"] == ["paused"] * 3 + ["completed"]
    requests = await mock.requests(4)
    told = '{"degrees":21}'
    assert answers(requests[2]) == [("call-Berlin", told), ("call-Rome", told), ("call-Oslo", told)]
    assert len(requests) == 4


@requirement("R234")
async def test_a_host_runs_the_calls_that_the_request_names_and_no_others(
    connection: Connection, mock: ModelServer, chat: str
) -> None:
    weather, other = Weather(), Weather()
    mixed = {"steps": [{"call": {"name": "current_time", "arguments": {}, "id": "own"}}, *calls("Berlin")["steps"]]}
    mock.script(mixed, says("Mild."))
    clock = HostTool("another", other.run)
    events = await all_of(run_turn_with_tools(connection, chat, TURN, [weather.tool, clock]))

    assert (weather.asked, other.asked) == (["Berlin"], [])
    requests = [event.data for event in events if event.type == "tool_call_request"]
    assert [request["execution_mode"] for request in requests] == ["internal", "external"]
    assert [call_id for call_id, _ in answers((await mock.requests(2))[1])] == ["own", "call-Berlin"]


async def test_a_tool_that_the_host_lacks_runs_nothing_and_the_pause_stays(
    connection: Connection, mock: ModelServer, chat: str
) -> None:
    weather = Weather()
    mixed = {"steps": [*calls("Berlin")["steps"], *calls("Rome", name="get_stock")["steps"]]}
    mock.script(mixed, says("Done."))
    missing = {**TURN, "tools": [{"name": "get_stock", "description": "Tell a price", "input_schema": SCHEMA}]}
    with pytest.raises(ToolMissingError, match="get_stock"):
        await all_of(run_turn_with_tools(connection, chat, missing, [weather.tool]))

    assert weather.asked == []
    pending = await connection.pending_request(chat)
    assert pending is not None
    results = [{"tool_call_id": call["id"], "output": "by hand"} for call in pending["tool_calls"]]
    events = await all_of(connection.resume(chat, pending["pause_id"], results))
    assert events[-1].data["status"] == "completed"
    assert await connection.pending_request(chat) is None


async def test_what_a_tool_raises_reaches_the_caller_and_the_pause_can_be_continued(
    connection: Connection, mock: ModelServer, chat: str
) -> None:
    weather = Weather(OSError("no network"))
    mock.script(calls("Berlin"), says("Mild."))
    seen: list[Event] = []
    with pytest.raises(OSError, match="no network"):
        async for event in run_turn_with_tools(connection, chat, TURN, [weather.tool]):
            seen = [*seen, event]

    assert weather.asked == ["Berlin"]
    assert [event.type for event in seen][-2:] == ["tool_call_request", "end"]
    pending = await connection.pending_request(chat)
    assert pending is not None
    results = [{"tool_call_id": "call-Berlin", "output": "mild"}]
    events = await all_of(connection.pass_results(pending["stream_id"], results, pause_id=pending["pause_id"]))
    assert events[-1].data["status"] == "completed"


@pytest.mark.parametrize(
    "after",
    [(1,), (400,), (700, 50, 300), (0,), (0, 0), (10**6, 0), (10**6, 200, 0, 150)],
    ids=lambda after: "-".join(map(str, after)),
)
@pytest.mark.parametrize("silent", [False, True], ids=["torn", "silent"])
async def test_a_cut_connection_runs_nothing_twice(
    server: Server, mock: ModelServer, chat: str, after: tuple[int, ...], *, silent: bool
) -> None:
    weather = Weather()
    spoken = {"steps": [{"text": "Let"}, {"text": " me"}, {"text": " see."}, *calls("Berlin")["steps"]]}
    mock.script(spoken, says("It is mild in Berlin."))
    transport = Cutting(*after, silent=silent)
    async with httpx.AsyncClient(transport=transport, timeout=10) as client:
        connection = Connection(server.root, user_id="ada", client=client)
        events = await all_of(run_turn_with_tools(connection, chat, TURN, [weather.tool]))

    assert weather.asked == ["Berlin"]
    check_events(events)
    assert "".join(event.data["text_delta"] for event in events if event.type == "text_delta") == (
        "Let me see.It is mild in Berlin."
    )
    requests = await mock.requests(2)
    assert len(requests) == 2
    assert [request["violations"] for request in requests] == [[], []]
    assert len(transport.requests) == 2 + sum(length < 10**6 for length in after)
    stored = await server.get(f"/v1/conversations/{chat}/messages", user_id="ada")
    assert [message["role"] for message in stored["items"]] == ["user", "assistant", "tool", "assistant"]


async def test_a_pending_request_is_asked_for_again_when_the_answer_is_lost(
    connection: Connection, server: Server, mock: ModelServer, chat: str
) -> None:
    mock.script(calls("Berlin"))
    await all_of(connection.run_turn(chat, {**TURN, "tools": [{"name": "get_weather", "input_schema": SCHEMA}]}))
    transport = Cutting(0, 20)
    async with httpx.AsyncClient(transport=transport, timeout=10) as client:
        pending = await Connection(server.root, user_id="ada", client=client).pending_request(chat)

    assert pending is not None
    assert [call["arguments"] for call in pending["tool_calls"]] == [{"city": "Berlin"}]
    assert len(transport.requests) == 3


async def test_a_refusal_is_raised_with_its_code(connection: Connection, mock: ModelServer, chat: str) -> None:
    with pytest.raises(RefusedError) as unknown:
        await all_of(connection.run_turn(chat, {**TURN, "persona_id": "nobody"}))
    assert (unknown.value.status, unknown.value.code) == (404, "GMI_PERSONA_NOT_FOUND")

    mock.script(says("Hello."))
    events = await all_of(connection.run_turn(chat, TURN))
    stream_id = next(event.data["stream_id"] for event in events if event.type == "final_response")
    with pytest.raises(RefusedError) as closed:
        await all_of(connection.pass_results(stream_id, [{"tool_call_id": "c1", "output": 1}]))
    assert (closed.value.status, closed.value.code) == (409, "TOOL_ERROR")
    assert closed.value.problem["reason"] == "ended"
    with pytest.raises(RefusedError) as nothing:
        await connection.pending_request("chat-of-nobody")
    assert nothing.value.status == 404


async def test_a_server_that_is_away_for_good_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.client.connection.FIRST_PAUSE", 0.001)
    with socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with Connection(address) as connection:
            with pytest.raises(httpx.ConnectError):
                await all_of(connection.run_turn("chat-1", TURN))
            with pytest.raises(httpx.ConnectError):
                await connection.pending_request("chat-1")
