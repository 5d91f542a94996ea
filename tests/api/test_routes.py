"""The plain calls: what they ask of the runtime, and what they answer."""

from dataclasses import asdict
from typing import Any

import pytest
from dirty_equals import IsPartialDict

from app.domain.overrides import OverridesChange
from app.domain.turn import Caller
from tests.api.fake_runtime import CONVERSATION, PAUSE, SKILL, TRACE_ENTRY, TRAITS, FakeRuntime
from tests.api.serving import application, client_of


async def test_the_pause_of_a_conversation_is_read(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.get("/v1/conversations/chat-1/pending-request")

    assert response.status_code == 200
    assert response.json() == PAUSE.to_json()


async def test_a_conversation_without_a_pause_is_a_204(runtime: FakeRuntime) -> None:
    runtime.pause = None
    async with client_of(application(runtime)) as client:
        response = await client.get("/v1/conversations/chat-1/pending-request")

    assert response.status_code == 204
    assert response.content == b""


async def test_pauses_are_listed_by_pages(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.get("/v1/pending-requests", params={"cursor": "c", "limit": 7})

    assert runtime.asked == [("c", 7)]
    assert response.json() == {"items": [PAUSE.to_json()], "next_cursor": "next"}


async def test_conversations_are_made_listed_read_changed_and_erased(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        made = await client.post("/v1/conversations", json={"title": "T", "metadata": {"a": 1}})
        listed = await client.get("/v1/conversations")
        read = await client.get("/v1/conversations/chat-1")
        changed = await client.patch("/v1/conversations/chat-1", json={"title": "U"})
        erased = await client.delete("/v1/conversations/chat-1")

    assert [made.status_code, listed.status_code, read.status_code] == [201, 200, 200]
    assert [changed.status_code, erased.status_code, erased.content] == [200, 204, b""]
    assert made.headers["Location"] == "/v1/conversations/chat-1"
    assert read.json() == IsPartialDict(conversation_id="chat-1", active_stream_id=None, pending_pause_id=None)
    assert runtime.asked == [
        (None, None, None, "T", {"a": 1}, ()),
        (None, 50),
        "chat-1",
        ("chat-1", "U", None),
        "chat-1",
    ]


async def test_the_trace_of_a_session_is_listed_by_pages_for_its_user(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        first = await client.get("/v1/sessions/s-1/trace", params={"user_id": "ada"})
        newest = await client.get("/v1/sessions/a%20b/trace", params={"order": "desc", "cursor": "9", "limit": 2})
        other = await client.get("/v1/sessions/s-1/trace", params={"order": "sideways"})

    assert runtime.asked == [("s-1", None, 50, False), ("a b", "9", 2, True)]
    assert runtime.callers[0] == Caller("ada")
    assert first.json() == {"items": [asdict(TRACE_ENTRY)], "next_cursor": "7"}
    assert [newest.status_code, other.status_code] == [200, 422]


async def test_the_overrides_of_a_session_are_read_changed_and_taken_back_for_its_user(runtime: FakeRuntime) -> None:
    change = {"options": {"temperature": 0.2, "top_p": None}, "preferences": {"tone": "dry"}, "enable_skills": ["tidy"]}
    async with client_of(application(runtime)) as client:
        read = await client.get("/v1/sessions/s-1/overrides", params={"user_id": "ada"})
        changed = await client.patch("/v1/sessions/s-1/overrides", json={"user_id": "ada", **change})
        wrong = await client.patch("/v1/sessions/s-1/overrides", json={"options": {"temperature": 3}})
        unknown = await client.patch("/v1/sessions/s-1/overrides", json={"options": {"model": "a:b"}})
        gone = await client.delete("/v1/sessions/s-1/overrides", params={"user_id": "ada"})
        skills = await client.get("/v1/skills")

    asked = OverridesChange({"temperature": 0.2, "top_p": None}, {"tone": "dry"}, ("tidy",))
    assert runtime.asked == ["s-1", ("s-1", asked), "s-1"]
    assert set(runtime.callers) == {Caller("ada")}
    assert read.json() == changed.json() == IsPartialDict(options={"temperature": 0.2}, enabled_skills=["tidy"])
    assert [wrong.status_code, unknown.status_code, gone.status_code] == [422, 422, 204]
    assert skills.json() == {"items": [asdict(SKILL)]}


async def test_the_traits_of_a_session_are_read_and_changed_for_its_user(runtime: FakeRuntime) -> None:
    change = {"persona_id": "tutor", "traits": {"patience": 0, "humor": None}}
    async with client_of(application(runtime)) as client:
        read = await client.get("/v1/sessions/s-1/traits", params={"user_id": "ada"})
        changed = await client.patch("/v1/sessions/s-1/traits", json={"user_id": "ada", **change})
        bodies: list[Any] = [{}, {"traits": {}}, {"traits": {"patience": 1.1}}, {"traits": {"patience": True}}]
        wrong = [await client.patch("/v1/sessions/s-1/traits", json=body) for body in bodies]

    assert runtime.asked == [("s-1", None), ("s-1", "tutor", {"patience": 0.0, "humor": None})]
    assert set(runtime.callers) == {Caller("ada")}
    assert read.json() == changed.json() == {**asdict(TRAITS), "changed": ["patience"]}
    assert [response.status_code for response in wrong] == [422] * 4


async def test_a_conversation_that_is_not_there_is_a_404(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.get("/v1/conversations/other")

    assert response.status_code == 404
    assert response.json()["code"] == "SYS_RESOURCE_NOT_FOUND"


@pytest.mark.parametrize(("query", "descending"), [("", False), ("?order=asc", False), ("?order=desc", True)])
async def test_messages_are_listed_in_either_order(query: str, runtime: FakeRuntime, *, descending: bool) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.get(f"/v1/conversations/chat-1/messages{query}")

    assert response.json() == {"items": [], "next_cursor": None}
    assert runtime.asked == [(CONVERSATION.conversation_id, None, 50, descending)]


async def test_personas_are_listed_and_read(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        listed = await client.get("/v1/personas")
        read = await client.get("/v1/personas/demo")
        unknown = await client.get("/v1/personas/nobody")

    assert listed.json()["items"] == [read.json()]
    assert read.json() == IsPartialDict(persona_id="demo", is_default=True)
    assert [unknown.status_code, unknown.json()["code"]] == [404, "GMI_PERSONA_NOT_FOUND"]


async def test_a_process_that_lives_is_not_ready_while_a_check_fails(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        ready = await client.get("/readyz")
        runtime.checks = {"database": False, "lease": True}
        unready = await client.get("/readyz")
        live = await client.get("/healthz")

    assert [ready.status_code, unready.status_code, live.status_code] == [200, 503, 200]
    assert unready.json() == {"status": "unavailable", "checks": {"database": False, "lease": True}}


@pytest.mark.parametrize("body", [None, {"user_id": "ada"}])
async def test_a_stream_is_cancelled_with_or_without_a_body(body: object, runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.post("/v1/streams/st_1/cancel", json=body)

    assert response.json() == {"status": "cancelling"}
    assert runtime.callers == [Caller("ada" if body else "local")]


async def test_every_answer_names_its_request(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        own = await client.get("/healthz", headers={"X-Request-Id": "my-id.1"})
        odd = await client.get("/healthz", headers={"X-Request-Id": "not a name"})

    assert own.headers["X-Request-Id"] == "my-id.1"
    assert odd.headers["X-Request-Id"].startswith("req_")
    assert own.headers["X-Content-Type-Options"] == "nosniff"
    assert own.headers["Cache-Control"] == "no-store"
