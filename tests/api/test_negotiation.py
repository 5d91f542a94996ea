"""Which form a client gets."""

import pytest
from starlette.datastructures import Headers

from app.api.negotiation import Form, form_of, quality
from app.domain.errors import NotAcceptableError
from tests.api.fake_runtime import FakeRuntime
from tests.api.serving import application, client_of


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, Form.EVENTS),
        ("", Form.EVENTS),
        ("*/*", Form.EVENTS),
        ("text/event-stream", Form.EVENTS),
        ("text/*", Form.EVENTS),
        ("application/json", Form.OBJECT),
        ("Application/JSON; charset=utf-8", Form.OBJECT),
        ("application/*", Form.OBJECT),
        ("application/json, text/event-stream", Form.EVENTS),
        ("application/json, text/event-stream;q=0.5", Form.OBJECT),
        ("application/json, */*;q=0.1", Form.OBJECT),
        ("text/event-stream;q=0, */*", Form.OBJECT),
        ("text/html, */*;q=0.8", Form.EVENTS),
    ],
)
def test_the_form_follows_from_accept(accept: str | None, form: Form) -> None:
    headers = Headers({} if accept is None else {"Accept": accept})

    assert form_of(headers) is form


@pytest.mark.parametrize("accept", ["text/html", "image/*", "application/xml", "*/*;q=0", "application/json;q=x"])
def test_a_client_that_takes_neither_form_is_refused(accept: str) -> None:
    with pytest.raises(NotAcceptableError):
        form_of(Headers({"Accept": accept}))


@pytest.mark.parametrize(
    "prefer",
    [
        "respond-async",
        "wait=10, respond-async",
        "Respond-Async",
        "respond-async; foo=1",
        "wait=5;x, respond-async ;a",
        'respond-async=""',
        "respond-async =",
    ],
)
def test_a_client_that_prefers_not_to_wait_gets_the_name_alone(prefer: str) -> None:
    assert form_of(Headers({"Prefer": prefer, "Accept": "text/html"})) is Form.ASYNC


@pytest.mark.parametrize("prefer", ["", "respond-asynchronously", "wait;respond-async", "respond-async=0"])
def test_another_preference_asks_for_no_name(prefer: str) -> None:
    assert form_of(Headers({"Prefer": prefer})) is Form.EVENTS


def test_the_most_specific_range_decides() -> None:
    assert quality("*/*;q=0.1, text/*;q=0.5, text/event-stream;q=0.9", "text/event-stream") == 0.9


@pytest.mark.parametrize("path", ["/v1/turns", "/v1/conversations/chat-1/turns"])
async def test_a_turn_that_can_not_be_answered_does_not_start(path: str, runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.post(path, json={"input": "a"}, headers={"Accept": "text/html"})

    assert response.status_code == 406
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["code"] == "SYS_NOT_ACCEPTABLE"
    assert runtime.asked == []


async def test_a_client_that_takes_json_alone_gets_the_streams_state_when_it_has_ended(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.get("/v1/streams/st_1/events", headers={"Accept": "application/json"})
        runtime.nothing_follows = True
        after = await client.get("/v1/streams/st_1/events", headers={"Accept": "application/json"})
        neither = await client.get("/v1/streams/st_1/events", headers={"Accept": "text/html"})

    assert response.json()["status"] == "paused"
    assert after.json() == response.json()
    assert neither.status_code == 406


async def test_async_is_answered_with_the_names_and_where_to_look(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.post(
            "/v1/conversations/chat-1/turns", json={"input": "a"}, headers={"Prefer": "respond-async"}
        )

    assert response.status_code == 202
    assert response.json() == {"stream_id": "st_1", "conversation_id": "chat-1", "turn_id": "turn_1"}
    assert response.headers["Location"] == "/v1/streams/st_1"
    assert response.headers["Preference-Applied"] == "respond-async"
    assert response.headers["X-Stream-Id"] == "st_1"
    assert response.headers["X-Conversation-Id"] == "chat-1"
