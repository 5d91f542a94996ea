"""API keys on a real server: who is let in, in whose name, and that another's things look like none at all."""

import json
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import httpx
import pytest

from tests.databases import Databases
from tests.live.quick import TOOL
from tests.mock_model import ModelServer
from tests.servers import Server, Servers
from tests.sse import check_whole, frames_of, only, text_of

KEYS: list[dict[str, Any]] = [
    {"name": "ann", "organization": "acme", "scopes": ["chat", "read"]},
    {"name": "ben", "organization": "acme", "scopes": ["chat", "read"]},
    {"name": "eve", "organization": "evil", "scopes": ["chat", "read"]},
    {"name": "reader", "organization": "acme", "scopes": ["read"]},
    {"name": "writer", "organization": "acme", "scopes": ["chat"]},
]


def secret(name: str) -> str:
    return f"the-key-of-{name}"


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret(name)}"}


@pytest.fixture(scope="session")
async def shared_keyed(
    databases: Databases, shared_mock: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    servers = Servers(tmp_path_factory.mktemp("keyed"))
    keys = [{**key, "sha256": sha256(secret(key["name"]).encode()).hexdigest()} for key in KEYS]
    async with databases.fresh() as url:
        try:
            yield await servers.start(url, shared_mock.base_url, FERMATA_API_KEYS=json.dumps(keys))
        finally:
            await servers.end()


@pytest.fixture
def keyed(shared_keyed: Server, model: ModelServer) -> Server:
    return shared_keyed


def told(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/problem+json", response.text
    return response.status_code, response.json()["code"]


async def paused(server: Server, name: str) -> dict[str, Any]:
    """Let Ann run a turn that pauses, and give its request."""
    body = {"input": "What is the weather?", "tools": [TOOL]}
    response = await server.client.post(f"/v1/conversations/{name}/turns", json=body, headers=bearer("ann"))
    frames = frames_of(response.content)
    check_whole(frames)
    return only(frames, "tool_call_request").data


CALLS = [
    ("POST", "/v1/conversations/open/turns", {"input": "Hello"}),
    ("POST", "/v1/turns", {"input": "Hello"}),
    ("GET", "/v1/conversations", None),
    ("GET", "/v1/conversations/open/pending-request", None),
    ("GET", "/v1/pending-requests", None),
    ("GET", "/v1/personas", None),
    ("GET", "/v1/streams/st_0/events", None),
]


@pytest.mark.parametrize(("method", "path", "body"), CALLS)
@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer wrong"}, {"X-API-Key": ""}, {"Authorization": "Basic YTpi"}]
)
async def test_without_a_known_key_nothing_is_answered(
    *, keyed: Server, model: ModelServer, method: str, path: str, body: Any, headers: dict[str, str]
) -> None:
    response = await keyed.client.request(method, path, json=body, headers=headers)

    assert told(response) == (401, "AUTH_AUTHENTICATION_REQUIRED")
    assert response.headers["www-authenticate"] == "Bearer"
    assert await model.requests(0) == []


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_health_needs_no_key(keyed: Server, method: str) -> None:
    answers = [await keyed.client.request(method, path) for path in ("/healthz", "/readyz")]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert [bool(answer.content) for answer in answers] == [method == "GET"] * 2


async def test_a_key_may_come_in_either_header(keyed: Server) -> None:
    for headers in (bearer("ann"), {"X-API-Key": secret("ann")}):
        assert (await keyed.client.get("/v1/personas", headers=headers)).status_code == httpx.codes.OK


def foreign_calls(name: str, request: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """Give every call that touches a conversation, its stream or its pause."""
    stream = request["stream_id"]
    results = [{"tool_call_id": request["tool_calls"][0]["id"], "output": "mine"}]
    return [
        ("GET", f"/v1/conversations/{name}", None),
        ("GET", f"/v1/conversations/{name}/messages", None),
        ("PATCH", f"/v1/conversations/{name}", {"title": "mine"}),
        ("DELETE", f"/v1/conversations/{name}", None),
        ("GET", f"/v1/conversations/{name}/pending-request", None),
        ("GET", f"/v1/streams/{stream}", None),
        ("GET", f"/v1/streams/{stream}/events", None),
        ("POST", f"/v1/streams/{stream}/tool-results", {"results": results}),
        ("POST", f"/v1/streams/{stream}/cancel", {}),
        ("POST", f"/v1/conversations/{name}/resume", {"pause_id": request["pause_id"], "results": results}),
    ]


@pytest.mark.parametrize("stranger", ["ben", "eve"])
async def test_another_users_or_organizations_things_are_not_found_and_stay(keyed: Server, stranger: str) -> None:
    name = f"of-ann-not-{stranger}"
    request = await paused(keyed, name)
    before = (await keyed.client.get(f"/v1/conversations/{name}/messages", headers=bearer("ann"))).json()

    for method, path, body in foreign_calls(name, request):
        response = await keyed.client.request(method, path, json=body, headers=bearer(stranger))
        assert told(response) == (404, "SYS_RESOURCE_NOT_FOUND"), (method, path)
    listed = [
        (await keyed.client.get(path, headers=bearer(stranger))).json()["items"]
        for path in ("/v1/conversations", "/v1/pending-requests")
    ]
    assert name not in json.dumps(listed)

    assert (await keyed.client.get(f"/v1/conversations/{name}/messages", headers=bearer("ann"))).json() == before
    results = [{"tool_call_id": request["tool_calls"][0]["id"], "output": "21 degrees"}]
    done = await keyed.client.post(
        f"/v1/streams/{request['stream_id']}/tool-results", json={"results": results}, headers=bearer("ann")
    )
    assert text_of(frames_of(done.content)) == "The tool says: 21 degrees"


async def test_a_turn_on_another_users_conversation_is_not_found(keyed: Server, model: ModelServer) -> None:
    body = {"input": "Hello"}
    await keyed.client.post("/v1/conversations/only-ann/turns", json=body, headers=bearer("ann"))
    refused = await keyed.client.post("/v1/conversations/only-ann/turns", json=body, headers=bearer("ben"))

    assert told(refused) == (404, "SYS_RESOURCE_NOT_FOUND")
    assert len(await model.requests()) == 1


async def test_two_organizations_may_have_conversations_of_one_name(keyed: Server) -> None:
    for name in ("ann", "eve"):
        body = {"input": f"I am {name}"}
        await keyed.client.post("/v1/conversations/same/turns", json=body, headers=bearer(name))
    said = [
        (await keyed.client.get("/v1/conversations/same/messages", headers=bearer(name))).json()["items"][0]["content"]
        for name in ("ann", "eve")
    ]
    assert said == ["I am ann", "I am eve"]


async def test_a_key_acts_in_its_own_organization_alone_and_for_its_users(keyed: Server) -> None:
    body = {"input": "Hello", "organization_id": "evil"}
    refused = await keyed.client.post("/v1/conversations/org/turns", json=body, headers=bearer("ann"))
    assert told(refused) == (403, "AUTH_PERMISSION_DENIED")

    for_zoe = await keyed.client.post(
        "/v1/conversations/zoe/turns", json={"input": "Hello", "user_id": "zoe"}, headers=bearer("ann")
    )
    check_whole(frames_of(for_zoe.content))
    as_ann = await keyed.client.get("/v1/conversations/zoe", headers=bearer("ann"))
    as_zoe = await keyed.client.get("/v1/conversations/zoe", params={"user_id": "zoe"}, headers=bearer("ann"))
    assert (as_ann.status_code, as_zoe.json()["user_id"]) == (httpx.codes.NOT_FOUND, "zoe")


async def test_a_key_without_the_scope_is_refused(keyed: Server) -> None:
    turn = await keyed.client.post("/v1/turns", json={"input": "Hello"}, headers=bearer("reader"))
    listing = await keyed.client.get("/v1/conversations", headers=bearer("writer"))

    assert told(turn) == (403, "AUTH_PERMISSION_DENIED")
    assert told(listing) == (403, "AUTH_PERMISSION_DENIED")
    assert (await keyed.client.get("/v1/conversations", headers=bearer("reader"))).status_code == httpx.codes.OK


async def test_keys_are_in_no_log(keyed: Server) -> None:
    await keyed.client.get("/v1/personas", headers=bearer("ann"))
    await keyed.client.get("/v1/personas", headers={"X-API-Key": "a-wrong-key-that-came"})
    assert '"path":"/v1/personas"' in keyed.log
    for word in ("the-key-of-", "a-wrong-key-that-came", "sk-test"):
        assert word not in keyed.log
