"""The description of the API: complete, valid, and the one that is committed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator

from app.api.openapi import contract_files
from app.api.schemas.chunks import CHUNK_MODELS, frame_schema
from app.domain.chunks import ChunkType
from app.main import create_app
from tests.api.serving import given

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = create_app(given()).openapi()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_the_committed_files_describe_the_api_as_it_is() -> None:
    stale = [
        name
        for name, text in contract_files(create_app(given())).items()
        if (ROOT / "openapi" / name).read_text(encoding="utf-8") != text
    ]

    assert stale == []


def test_the_description_does_not_depend_on_the_settings() -> None:
    keys = [{"name": "a", "sha256": "0" * 64}]
    other = given(port=9, cors_origins=["https://a.example"], api_keys=keys, max_body_bytes=2048)

    assert contract_files(create_app(other)) == contract_files(create_app(given()))


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for reference in set(references(document)):
        place: Any = document
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]


def test_every_schema_is_a_schema(document: dict[str, Any]) -> None:
    for schema in (*document["components"]["schemas"].values(), frame_schema()):
        Draft202012Validator.check_schema(schema)


def test_every_call_says_what_it_does_and_has_a_name_of_its_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]

    assert len(set(names)) == len(names)
    assert [path for path, _, operation in operations(document) if not operation.get("description")] == []


def test_every_call_but_health_documents_its_refusals(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        if path in {"/healthz", "/readyz"}:
            continue
        assert {"400", "401", "403", "422", "500", "503"} <= set(operation["responses"]), path
        if method in {"post", "patch"}:
            assert "413" in operation["responses"], path
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert list(response["content"]) == ["application/problem+json"], (path, status)
                assert response["description"].startswith("`"), (path, status)


def test_every_stream_is_described_by_its_items(document: dict[str, Any]) -> None:
    streaming = {
        path
        for path, _, operation in operations(document)
        if "text/event-stream" in operation["responses"].get("200", {}).get("content", {})
    }

    assert streaming == {
        "/v1/turns",
        "/v1/conversations/{conversation_id}/turns",
        "/v1/conversations/{conversation_id}/resume",
        "/v1/streams/{stream_id}/tool-results",
        "/v1/streams/{stream_id}/events",
    }


def test_every_type_of_chunk_has_its_schema() -> None:
    described = {get_args(model.model_fields["type"].annotation)[0] for model in CHUNK_MODELS}

    assert described == set(get_args(ChunkType))


def test_the_files_are_canonical() -> None:
    for text in contract_files(create_app(given())).values():
        assert text == json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
