"""Documents over HTTP: what is answered and what is refused."""

import base64
import json
from typing import Any

import httpx
import pytest
from dirty_equals import IsPartialDict, IsStr

from tests.api.serving import application, client_of
from tests.memory.test_chunking import pdf
from tests.stage import Stage


def client(stage: Stage) -> httpx.AsyncClient:
    return client_of(application(stage.runtime))


async def test_a_document_is_taken_in_read_searched_listed_and_erased(stage: Stage) -> None:
    async with client(stage) as http:
        body = {"document_id": "shop", "content": "We open at nine.", "title": "Shop", "metadata": {"a": 1}}
        made = await http.post("/v1/documents", json=body)
        read = await http.get("/v1/documents/shop")
        passages = await http.get("/v1/documents/shop/passages")
        found = await http.post("/v1/documents/search", json={"query": "When do you open?"})
        listed = await http.get("/v1/documents", params={"collection": "default"})
        erased = await http.delete("/v1/documents/shop")
        gone = await http.get("/v1/documents/shop")

    assert (made.status_code, made.headers["Location"]) == (201, "/v1/documents/shop")
    assert made.json() == {
        "document_id": "shop", "scope": "organization", "user_id": "local", "conversation_id": None,
        "collection": "default", "title": "Shop", "source": None, "content_type": "text/plain", "language": None,
        "metadata": {"a": 1}, "characters": 16, "chunk_count": 1, "embedding_model": None, "created_at": IsStr(),
        "effective_at": None, "expires_at": None,
    }  # fmt: skip
    assert read.json() == made.json()
    assert passages.json() == {
        "items": [IsPartialDict(id="shop#1", number=1, content="We open at nine.", title="Shop")],
        "next_cursor": None,
    }
    assert found.json()["items"] == [IsPartialDict(id="shop#1", relevance_score=1.0)]
    assert [entry["document_id"] for entry in listed.json()["items"]] == ["shop"]
    assert (erased.status_code, gone.status_code, gone.json()["code"]) == (204, 404, "SYS_RESOURCE_NOT_FOUND")


async def test_a_document_is_found_only_while_it_holds(stage: Stage) -> None:
    past, future = "2020-01-01T00:00:00Z", "2999-01-01T02:00:00+02:00"
    async with client(stage) as http:
        for name, span in {
            "now": {"effective_at": past, "expires_at": future},
            "over": {"expires_at": past},
            "later": {"effective_at": future},
        }.items():
            made = await http.post("/v1/documents", json={"document_id": name, "content": "The tariff.", **span})
            assert made.status_code == 201
        assert (await http.get("/v1/documents/later")).json()["effective_at"] == "2999-01-01T00:00:00.000Z"
        found = await http.post("/v1/documents/search", json={"query": "tariff"})
        assert [item["document_id"] for item in found.json()["items"]] == ["now"]


async def test_a_search_by_metadata_and_mmr_takes_any_value(stage: Stage) -> None:
    async with client(stage) as http:
        for name, value in {"plain": "a", "nul": "a\x00b", "half": "\ud83d"}.items():
            body = {"document_id": name, "content": f"The tariff {name}.", "metadata": {"key": value}}
            sent = await http.post(
                "/v1/documents", content=json.dumps(body), headers={"content-type": "application/json"}
            )
            assert sent.status_code == 201
        cases: list[tuple[dict[str, Any], int]] = [
            ({"key": "a"}, 1), ({"key": "z\x00"}, 0), ({"a\x00": {}}, 0), ({"k": 1e308}, 0),
        ]  # fmt: skip
        for metadata, count in cases:
            asked: dict[str, Any] = {"query": "tariff", "metadata": metadata, "strategy": "mmr", "mmr_lambda": 0.2}
            found = await http.post("/v1/documents/search", json=asked)
            assert (found.status_code, len(found.json()["items"])) == (200, count)
        refused = await http.post("/v1/documents/search", json={"query": "tariff", "mmr_lambda": 1.5})
        assert (refused.status_code, refused.json()["code"]) == (422, "SYS_VALIDATION_ERROR")


async def test_a_pdf_is_sent_as_base64(stage: Stage) -> None:
    async with client(stage) as http:
        content = base64.b64encode(pdf("Hello Ada")).decode()
        made = await http.post("/v1/documents", json={"content_type": "application/pdf", "content_base64": content})
        assert made.status_code == 201
        passages = await http.get(f"/v1/documents/{made.json()['document_id']}/passages")
    assert passages.json()["items"][0] == IsPartialDict(heading="Page 1", content="Hello Ada")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "SYS_VALIDATION_ERROR"),
        ({"content": "a", "content_base64": "YQ=="}, 422, "SYS_VALIDATION_ERROR"),
        ({"content_base64": "not base64!"}, 422, "SYS_VALIDATION_ERROR"),
        ({"content": "x", "content_type": "application/pdf"}, 422, "SYS_VALIDATION_ERROR"),
        ({"content_base64": "bm8=", "content_type": "application/pdf"}, 422, "SYS_VALIDATION_ERROR"),
        ({"content": "x", "content_type": "image/png"}, 422, "SYS_VALIDATION_ERROR"),
        ({"content": "x", "scope": "conversation"}, 422, "SYS_VALIDATION_ERROR"),
        ({"content": "x", "conversation_id": "c"}, 422, "SYS_VALIDATION_ERROR"),
        ({"content": "x", "scope": "conversation", "conversation_id": "c"}, 404, "SYS_RESOURCE_NOT_FOUND"),
        ({"content": "<p></p>", "content_type": "text/html"}, 422, "SYS_VALIDATION_ERROR"),
        ({"content": "x", "expires_at": "tomorrow"}, 422, "SYS_VALIDATION_ERROR"),
        ({"content": "x", "expires_at": "2026-01-01T00:00:00"}, 422, "SYS_VALIDATION_ERROR"),
        ({"content": "x", "effective_at": "0001-01-01T00:00:00+14:00"}, 422, "SYS_VALIDATION_ERROR"),
        (
            {"content": "x", "effective_at": "2026-01-02T00:00:00Z", "expires_at": "2026-01-01T00:00:00Z"},
            422,
            "SYS_VALIDATION_ERROR",
        ),
        ({"content": "x" * 1_000_001}, 413, "SYS_PAYLOAD_TOO_LARGE"),
        ({"content": "x", "organization_id": "o", "colection": "a"}, 422, "SYS_VALIDATION_ERROR"),
    ],
)
async def test_what_can_not_be_taken_in_is_refused(stage: Stage, body: dict[str, Any], status: int, code: str) -> None:
    async with client(stage) as http:
        answer = await http.post("/v1/documents", json=body)
        listed = await http.get("/v1/documents")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert listed.json()["items"] == []


async def test_lists_go_on_where_a_page_ends(stage: Stage) -> None:
    async with client(stage) as http:
        for number in range(5):
            await http.post("/v1/documents", json={"document_id": f"d{number}", "content": "word. " * 200})
        for path, count in (("/v1/documents", 5), ("/v1/documents/d0/passages", 3)):
            seen: list[Any] = []
            page: dict[str, Any] = {"next_cursor": None}
            while not seen or page["next_cursor"]:
                more = {"cursor": page["next_cursor"]} if page["next_cursor"] else {}
                page = (await http.get(path, params={"limit": "2", **more})).json()
                seen += page["items"]
            assert len({str(entry) for entry in seen}) == len(seen) == count
        for path in ("/v1/documents", "/v1/documents/d0/passages"):
            bad = await http.get(path, params={"cursor": "nonsense"})
            assert (bad.status_code, bad.json()["code"]) == (400, "SYS_PARSING_ERROR")


async def test_another_user_sees_no_document_that_is_not_the_organizations(stage: Stage) -> None:
    async with client(stage) as http:
        await http.post(
            "/v1/documents", json={"document_id": "mine", "content": "x", "scope": "user", "user_id": "ada"}
        )
        for user, status in (("ada", 200), ("bob", 404)):
            for path in ("/v1/documents/mine", "/v1/documents/mine/passages"):
                assert (await http.get(path, params={"user_id": user})).status_code == status
        assert (await http.delete("/v1/documents/mine", params={"user_id": "bob"})).status_code == 404
        assert (await http.delete("/v1/documents/mine", params={"user_id": "ada"})).status_code == 204


async def test_memories_are_listed_and_forgotten_and_users_erased_over_http(stage: Stage) -> None:
    async with client(stage) as http:
        listed = await http.get("/v1/memories", params={"user_id": "ada"})
        assert (listed.status_code, listed.json()) == (200, {"items": [], "next_cursor": None})
        gone = await http.delete("/v1/memories/mem_1")
        assert (gone.status_code, gone.json()["code"]) == (404, "SYS_RESOURCE_NOT_FOUND")
        assert (await http.delete("/v1/memories")).json() == {"forgotten": 0}
        await http.post("/v1/conversations", json={"conversation_id": "c", "user_id": "ada"})
        assert (await http.delete("/v1/users/ada", params={"user_id": "bob"})).status_code == 422
        assert (await http.delete("/v1/users/ada")).json() == {"conversations": 1}
        assert (await http.get("/v1/conversations/c", params={"user_id": "ada"})).status_code == 404
