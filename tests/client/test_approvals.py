"""A host that is asked whether the service may run a call: its callback decides, and without one nothing is run."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from app.client import Approval, Connection, HostTool, RefusedError, run_turn_with_tools
from tests.databases import Databases
from tests.mock_model import ModelServer
from tests.servers import Server, Servers
from tests.sse import only
from tests.till import Till, till, wants_back

TURN = {"input": "Pay Ann back."}


@pytest.fixture(scope="module")
async def money() -> AsyncIterator[Till]:
    async with till() as made:
        yield made


@pytest.fixture(scope="module")
async def server(
    databases: Databases, model: ModelServer, money: Till, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    folder = tmp_path_factory.mktemp("approvals")
    async with databases.fresh() as database:
        starting = Servers(folder)
        yield await starting.start(database, model.base_url, **money.settings(folder))
        await starting.end()


@pytest.fixture(autouse=True)
def nothing_paid(money: Till) -> None:
    money.paid.clear()


def told(request: Mapping[str, Any]) -> dict[str, str]:
    """Give the answers that a model was told, by call."""
    messages = request["body"]["messages"]
    return {one["tool_call_id"]: one["content"] for one in messages if one["role"] == "tool"}


async def test_the_callback_decides_on_each_call_and_host_tools_run_beside_it(
    connection: Connection, mock: ModelServer, chat: str, money: Till
) -> None:
    asked: list[tuple[str, Any]] = []

    async def decide(call: Mapping[str, Any]) -> Approval:
        asked.append((call["name"], call["arguments"]))
        answers = {
            500: Approval(approved=True),
            700: Approval(approved=True, arguments={"cents": 70}, approved_by="Grace"),
            900: Approval(approved=False, reason="Too much."),
        }
        return answers[call["arguments"]["cents"]]

    async def weather(city: str) -> str:
        return f"mild in {city}"

    own = {"call": {"name": "get_weather", "arguments": {"city": "Rome"}, "id": "own", "index": 3}}
    mock.script({"steps": [*wants_back(500, 700, 900)["steps"], own]}, {"steps": [{"text": "Done."}]})
    tools = [HostTool("get_weather", weather)]
    events = [event async for event in run_turn_with_tools(connection, chat, TURN, tools, approve=decide)]

    assert [arguments["cents"] for _, arguments in asked] == [500, 700, 900]
    assert sorted(money.paid) == [70, 500]
    assert events[-1].data["status"] == "completed"
    answers = told((await mock.requests(2))[1])
    assert list(answers) == ["call-500", "call-700", "call-900", "own"]
    assert "A person refused this call: Too much." in answers["call-900"]
    assert '"changed_by_a_person"' in answers["call-700"]
    assert answers["own"] == "mild in Rome"


async def test_without_a_callback_nothing_is_run_and_the_model_is_told(
    connection: Connection, mock: ModelServer, chat: str, money: Till
) -> None:
    mock.script(wants_back(500), {"steps": [{"text": "I may not."}]})
    events = [event async for event in run_turn_with_tools(connection, chat, TURN, [])]

    assert money.paid == []
    assert events[-1].data["status"] == "completed"
    assert "Nobody was there to agree to pay_back." in told((await mock.requests(2))[1])["call-500"]


async def test_changed_arguments_that_do_not_fit_are_refused_and_the_pause_stays(
    connection: Connection, mock: ModelServer, chat: str, money: Till
) -> None:
    async def decide(call: Mapping[str, Any]) -> Approval:
        del call
        return Approval(approved=True, arguments={"cents": "all of it"})

    mock.script(wants_back(500), {"steps": [{"text": "Paid."}]})
    with pytest.raises(RefusedError) as refused:
        [event async for event in run_turn_with_tools(connection, chat, TURN, [], approve=decide)]

    assert (refused.value.status, refused.value.code) == (422, "SYS_VALIDATION_ERROR")
    assert money.paid == []
    pending = await connection.pending_request(chat)
    assert pending is not None
    assert [call["kind"] for call in pending["tool_calls"]] == ["approval"]
    results = [{"tool_call_id": "call-500", "approval": {"approved": True}}]
    events = [event async for event in connection.resume(chat, pending["pause_id"], results)]
    assert (events[-1].data["status"], money.paid) == ("completed", [500])


async def test_what_is_no_decision_is_refused_over_http_and_changes_nothing(
    server: Server, mock: ModelServer, chat: str, money: Till
) -> None:
    mock.script(wants_back(500), {"steps": [{"text": "I may not."}]})
    frames = await server.turn(chat, "Pay Ann back.")
    request = only(frames, "tool_call_request").data
    path = f"/v1/streams/{request['stream_id']}/tool-results"
    bad: list[tuple[dict[str, Any], int]] = [
        ({"output": "done"}, 409),
        ({"is_error": True}, 409),
        ({"approval": {"approved": True}, "output": 1}, 422),
        ({"approval": {"approved": False, "arguments": {"cents": 1}}}, 422),
        ({"approval": {"approved": True, "arguments": {"cents": 0}}}, 422),
        ({"approval": {"approved": True, "arguments": [1]}}, 422),
        ({"approval": {}}, 422),
    ]
    for answer, status in bad:
        response = await server.client.post(path, json={"results": [{"tool_call_id": "call-500", **answer}]})
        assert response.status_code == status, (answer, response.text)
        pending = await server.get(f"/v1/conversations/{chat}/pending-request")
        assert pending["pause_id"] == request["pause_id"]
    assert (money.paid, len(mock.seen.requests)) == ([], 1)
    ended = await server.results(
        request["stream_id"], {"tool_call_id": "call-500", "approval": {"approved": False, "reason": "No."}}
    )
    assert (ended[-1].data["status"], money.paid) == ("completed", [])
