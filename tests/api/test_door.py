"""Who is let in, for whom a call is, and what a key may do."""

from hashlib import sha256
from typing import Any

import pytest
from dirty_equals import IsPartialDict

from app.auth.keys import ApiKey, KeyRing
from app.auth.principal import ANYBODY, Scope
from app.domain.turn import Caller
from tests.api.fake_runtime import FakeRuntime
from tests.api.serving import application, client_of
from tests.requirements import requirement


def key(name: str = "ann", organization: str = "acme", scopes: tuple[str, ...] = ("chat", "read")) -> dict[str, Any]:
    digest = sha256(f"{name}-secret".encode()).hexdigest()
    return {"name": name, "sha256": digest, "organization": organization, "scopes": list(scopes)}


def bearing(name: str = "ann") -> dict[str, str]:
    return {"Authorization": f"Bearer {name}-secret"}


async def test_with_keys_a_call_without_one_is_refused(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime, api_keys=[key()])) as client:
        response = await client.get("/v1/personas")

    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json() == IsPartialDict(code="AUTH_AUTHENTICATION_REQUIRED", status=401)


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer "},
        {"X-API-Key": "wrong"},
        {"X-API-Key": ""},
    ],
)
async def test_a_key_that_is_not_known_is_refused(headers: dict[str, str], runtime: FakeRuntime) -> None:
    async with client_of(application(runtime, api_keys=[key()])) as client:
        response = await client.get("/v1/personas", headers=headers)

    assert response.status_code == 401


@pytest.mark.parametrize(
    "headers",
    [bearing(), {"Authorization": "bearer  ann-secret"}, {"X-API-Key": "ann-secret"}],
)
async def test_a_known_key_is_let_in_by_either_header(headers: dict[str, str], runtime: FakeRuntime) -> None:
    async with client_of(application(runtime, api_keys=[key("bob"), key()])) as client:
        response = await client.get("/v1/personas", headers=headers)

    assert response.status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/", "/docs", "/openapi.json", "/page/console.js"])
async def test_health_and_the_static_pages_need_no_key(path: str, runtime: FakeRuntime) -> None:
    async with client_of(application(runtime, api_keys=[key()])) as client:
        response = await client.get(path)

    assert response.status_code == 200


async def test_the_key_is_asked_for_before_the_body_is_read(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime, api_keys=[key()])) as client:
        response = await client.post("/v1/turns", content=b"{broken", headers={"Content-Type": "application/json"})

    assert response.status_code == 401


async def test_the_key_decides_the_organization_and_names_the_user(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime, api_keys=[key()]), **bearing()) as client:
        await client.get("/v1/conversations")
        await client.post("/v1/turns", json={"input": "hi"})

    assert runtime.callers == [Caller("ann", "acme"), Caller("ann", "acme")]


async def test_a_key_may_act_for_the_users_of_its_organization(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime, api_keys=[key()]), **bearing()) as client:
        await client.get("/v1/conversations", params={"user_id": "carl", "organization_id": "acme"})
        await client.post("/v1/turns", json={"input": "hi", "user_id": "carl", "organization_id": " acme "})

    assert runtime.callers == [Caller("carl", "acme"), Caller("carl", "acme")]


@pytest.mark.parametrize("organization", ["acme", ""])
async def test_another_organization_than_the_keys_is_refused(organization: str, runtime: FakeRuntime) -> None:
    async with client_of(application(runtime, api_keys=[key(organization=organization)]), **bearing()) as client:
        in_query = await client.get("/v1/conversations", params={"organization_id": "evil"})
        in_body = await client.post("/v1/turns", json={"input": "hi", "organization_id": "evil"})

    assert [in_query.status_code, in_body.status_code] == [403, 403]
    assert in_body.json()["code"] == "AUTH_PERMISSION_DENIED"
    assert runtime.asked == []


async def test_a_key_that_may_only_read_starts_no_turn(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime, api_keys=[key(scopes=("read",))]), **bearing()) as client:
        read = await client.get("/v1/conversations")
        turn = await client.post("/v1/turns", json={"input": "hi"})
        erase = await client.delete("/v1/conversations/chat-1")

    assert [read.status_code, turn.status_code, erase.status_code] == [200, 403, 403]
    assert "'chat'" in turn.json()["detail"]


async def test_a_key_that_may_only_chat_reads_nothing(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime, api_keys=[key(scopes=("chat",))]), **bearing()) as client:
        read = await client.get("/v1/streams/st_1/events")
        turn = await client.post("/v1/turns", json={"input": "hi"})

    assert [read.status_code, turn.status_code] == [403, 200]


async def test_only_a_key_of_an_operator_reads_prompts(runtime: FakeRuntime) -> None:
    statuses = []
    for scopes in (("chat", "read"), ("operator",)):
        async with client_of(application(runtime, api_keys=[key(scopes=scopes)]), **bearing()) as client:
            statuses.append((await client.get("/v1/streams/st_1/prompt")).status_code)
            statuses.append((await client.get("/v1/streams/st_1")).status_code)

    assert statuses == [403, 200, 200, 403]


async def test_without_keys_the_caller_says_who_it_is(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        await client.get("/v1/conversations")
        await client.get("/v1/conversations", params={"user_id": "ada", "organization_id": "acme"})
        await client.post("/v1/turns", json={"input": "hi", "user_id": "ada", "organization_id": "  "})

    assert runtime.callers == [Caller("local"), Caller("ada", "acme"), Caller("ada")]


async def test_user_ids_that_differ_in_address_and_body_are_refused(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime)) as client:
        response = await client.post("/v1/turns?user_id=eve", json={"input": "hi", "user_id": "ada"})

    assert response.status_code == 422
    assert runtime.asked == []


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "8.8.8.8", "[fe80::1]"]
)
async def test_without_keys_a_foreign_host_header_is_refused(host: str, runtime: FakeRuntime) -> None:
    async with client_of(application(runtime), Host=host) as client:
        response = await client.get("/v1/conversations")

    assert response.status_code == 403
    assert "FERMATA_ALLOWED_HOSTS" in response.json()["detail"]


@pytest.mark.parametrize("host", ["127.0.0.1:9", "localhost", "LOCALHOST:8000", "[::1]:8000", "box.example:80"])
async def test_without_keys_the_machines_own_names_are_taken(host: str, runtime: FakeRuntime) -> None:
    async with client_of(application(runtime, allowed_hosts=["Box.example"]), Host=host) as client:
        response = await client.get("/v1/conversations")

    assert response.status_code == 200


async def test_with_keys_any_host_header_is_taken(runtime: FakeRuntime) -> None:
    async with client_of(application(runtime, api_keys=[key()]), Host="chat.example", **bearing()) as client:
        response = await client.get("/v1/conversations")

    assert response.status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9999"])
async def test_without_keys_a_page_of_another_origin_changes_nothing(origin: str, runtime: FakeRuntime) -> None:
    async with client_of(application(runtime), Origin=origin) as client:
        response = await client.post("/v1/streams/st_1/cancel")

    assert response.status_code == 403
    assert "FERMATA_CORS_ORIGINS" in response.json()["detail"]
    assert runtime.asked == []


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8000", "https://chat.example"])
async def test_without_keys_its_own_page_and_those_of_listed_origins_may_change_things(
    origin: str, runtime: FakeRuntime
) -> None:
    app = application(runtime, cors_origins=["https://chat.example"])
    async with client_of(app, Origin=origin) as client:
        response = await client.post("/v1/streams/st_1/cancel")

    assert response.status_code == 200


def test_an_empty_ring_knows_everybody_as_the_local_principal() -> None:
    assert KeyRing([]).identify(None) is ANYBODY


def test_a_key_with_odd_characters_is_compared_and_not_raised_about() -> None:
    ring = KeyRing([ApiKey("ann", sha256(b"x").hexdigest(), scopes=frozenset({Scope.READ}))])

    assert ring.identify("\udcff") is None
    principal = ring.identify("x")
    assert principal is not None
    assert principal.scopes == {Scope.READ}


@requirement("R350")
async def test_who_may_not_ask_or_asks_too_much_is_refused_ahead_of_the_facade(runtime: FakeRuntime) -> None:
    app = application(runtime, api_keys=[key()], max_readers_per_user=1)
    async with client_of(app) as client:
        stranger = await client.post("/v1/turns", json={"input": "Hi."})
    place = app.state.door.readers.take(Caller("ann", "acme"))
    async with client_of(app, **bearing()) as client:
        too_many = await client.post("/v1/turns", json={"input": "Hi."})
        assert runtime.asked == []
        place.release()
        let_in = await client.post("/v1/turns", json={"input": "Hi."})

    assert [stranger.status_code, too_many.status_code, let_in.status_code] == [401, 429, 200]
    assert len(runtime.asked) > 0


async def test_counts_are_shown_to_keys_with_their_scope_alone_where_there_are_any(runtime: FakeRuntime) -> None:
    keys = [key(), key("operator", scopes=("operator",))]
    async with client_of(application(runtime, api_keys=keys)) as client:
        nobody = await client.get("/metrics")
        ann = await client.get("/metrics", headers=bearing())
        off = await client.get("/metrics", headers=bearing("operator"))
        runtime.counts = b"fermata_x 1.0\n"
        on = await client.get("/metrics", headers=bearing("operator"))
        reads = await client.get("/v1/conversations", headers=bearing("operator"))

    assert [answer.status_code for answer in (nobody, ann, off, on, reads)] == [401, 403, 404, 200, 403]
    assert "FERMATA_METRICS=true" in off.json()["detail"]
    assert (on.text, on.headers["content-type"]) == (
        "fermata_x 1.0\n",
        "text/plain; version=0.0.4; charset=utf-8",
    )


async def test_without_keys_counts_are_shown_to_whoever_is_on_this_machine(runtime: FakeRuntime) -> None:
    runtime.counts = b"fermata_x 1.0\n"
    async with client_of(application(runtime)) as client:
        assert (await client.get("/metrics")).text == "fermata_x 1.0\n"
