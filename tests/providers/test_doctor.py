"""Checks of providers of which no model is named: asked for their list, by each dialect's address and key."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import respx

from app.providers.calls import HttpPolicy
from app.providers.config import ProviderPart, ProvidersFile
from app.providers.doctor import Finding, examine_provider
from app.providers.registry import ProviderRegistry, ProvidersPolicy, build_registry

KEYS = {
    "OPENAI_API_KEY": "sk-openai-0123456789",
    "ANTHROPIC_API_KEY": "sk-anthropic-0123456789",
    "GEMINI_API_KEY": "gemini-0123456789",
}
HOUSE = ProviderPart(base_url="http://llm.internal:8000/v1")


@pytest.fixture
async def registry() -> AsyncIterator[ProviderRegistry]:
    policy = ProvidersPolicy(
        http=HttpPolicy(transport="httpx"), environment=KEYS, file=ProvidersFile(providers={"house": HOUSE})
    )
    built = build_registry(policy)
    yield built
    await built.aclose()


def test_the_providers_that_the_operator_set_up_are_known(registry: ProviderRegistry) -> None:
    assert registry.chosen == ("house", "openai", "anthropic", "gemini")


@pytest.mark.parametrize(
    ("name", "address", "header", "body"),
    [
        ("openai", "https://api.openai.com/v1/models", "authorization", {"data": [{"id": "big"}]}),
        ("anthropic", "https://api.anthropic.com/v1/models", "x-api-key", {"data": [{"id": "big"}]}),
        (
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta/models",
            "x-goog-api-key",
            {"models": [{"name": "models/big"}]},
        ),
        ("house", "http://llm.internal:8000/v1/models", None, {"data": [{"id": "big"}]}),
    ],
)
@respx.mock
async def test_each_is_asked_in_its_own_words_without_spending_a_token(
    registry: ProviderRegistry, name: str, address: str, header: str | None, body: Any
) -> None:
    route = respx.get(address).mock(return_value=httpx.Response(200, json=body))

    finding = await examine_provider(registry, name)

    assert (finding.well, finding.sentence) == (True, "It has 1 models: big.")
    assert header is None or "0123456789" in route.calls.last.request.headers[header]
    assert route.calls.last.request.content == b""


@pytest.mark.parametrize(
    ("answer", "well", "says"),
    [
        (httpx.Response(401, json={"error": {"message": "bad sk-openai-0123456789"}}), False, "refused the API key"),
        (httpx.Response(404, json={"error": {"message": "no such page"}}), True, "name one, as openai:MODEL"),
        (httpx.Response(200, json={"data": []}), False, "It has no model."),
        (httpx.Response(200, json=[1]), False, "It has no model."),
        (httpx.Response(200, text="<html>"), False, "without JSON"),
        (httpx.ConnectError("no"), False, "can't be reached"),
        (
            httpx.Response(200, json={"data": [{"id": f"m{number}"} for number in range(9)]}),
            True,
            "It has 9 models: m0, m1, m2, \u2026.",
        ),
    ],
)
async def test_what_came_of_it_is_told_without_the_key(
    registry: ProviderRegistry, respx_mock: respx.MockRouter, answer: Any, says: str, *, well: bool
) -> None:
    respx_mock.get("https://api.openai.com/v1/models").mock(side_effect=[answer])

    finding: Finding = await examine_provider(registry, "openai")

    assert finding.well is well
    assert says in finding.sentence
    assert "sk-openai" not in finding.sentence
