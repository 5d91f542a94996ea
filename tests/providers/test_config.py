"""The file of providers, and the providers that are made of it."""

import json

import httpx
import pytest
import respx

from app.domain.errors import ConfigurationError, ProviderUnavailableError
from app.domain.messages import Message
from app.domain.usage import Usage
from app.providers.base import ModelRequest
from app.providers.calls import HttpPolicy
from app.providers.compat import PRESETS
from app.providers.config import compat_of, read_providers_file
from app.providers.facts import ModelFacts, Prices
from app.providers.registry import ProvidersPolicy, build_registry
from tests.providers.reading import chunk, collect, outcome, stream, text_of

FILE = """
providers:
  openai:
    dialect: responses
    models:
      gpt-5: {context_window: 400000, prices: {input: 1.25, cached_input: 0.125, output: 10}}
  house:
    base_url: http://llm.internal:8000/v1
    api_key_env: HOUSE_KEY
    headers: {x-team: "${TEAM}-a"}
    preset: vllm
    quirks: {include_usage: false, reasoning_fields: [thought]}
  cloud:
    base_url: https://cloud.example.org/openai/v1
    api_key_env: CLOUD_KEY
    key_header: api-key
  local:
    base_url: http://127.0.0.1:9/v1
roles: {chat: "openai:gpt-5", utility: "house:small"}
fallbacks: ["house:big"]
"""
REQUEST = ModelRequest("big", (Message("user", "hi"),))


def test_the_example_is_read() -> None:
    read = read_providers_file(FILE)

    assert (read.roles.chat, read.roles.utility, read.roles.embedding) == ("openai:gpt-5", "house:small", None)
    assert read.fallbacks == ("house:big",)
    assert read.facts("openai:gpt-5") == ModelFacts(400000, prices=Prices(1.25, 10, 0.125))
    assert read.facts("openai:gpt-6") == ModelFacts()


def test_an_empty_file_sets_nothing() -> None:
    assert read_providers_file("").providers == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("providers: [", "not YAML"),
        ("provider: {}", "provider"),
        ("providers: {x: {}}", "needs a base_url"),
        ("providers: {x: {base_url: ftp://x}}", r"providers\.x\.base_url"),
        ("providers: {openai: {colour: red}}", r"providers\.openai\.colour"),
        ("providers: {openai: {preset: nobody}}", "no preset 'nobody'"),
        ("providers: {openai: {quirks: {nothing: 1}}}", "no quirk 'nothing'"),
        ("providers: {openai: {quirks: {include_usage: sometimes}}}", "quirk include_usage"),
        ("providers: {openai: {models: {m: {prices: {input: -1}}}}}", r"prices\.input"),
        ("fallbacks: [gpt]", r"fallbacks\.0"),
        ("[1]", "its top"),
    ],
)
def test_what_is_wrong_in_the_file_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        read_providers_file(text, "providers.yaml")


def test_quirks_of_the_file_go_over_those_of_the_preset() -> None:
    house = read_providers_file(FILE).providers["house"]

    compat = compat_of(house, house.base_url or "")

    assert (compat.include_usage, compat.reasoning_fields) == (False, ("thought",))
    assert compat.call_id == PRESETS["vllm"].call_id


async def test_providers_of_the_file_are_made_with_address_key_and_headers(respx_mock: respx.MockRouter) -> None:
    answer = httpx.Response(
        200, headers={"content-type": "text/event-stream"}, content=stream(chunk({"content": "a"}, "stop"))
    )
    house = respx_mock.post("http://llm.internal:8000/v1/chat/completions").mock(return_value=answer)
    cloud = respx_mock.post("https://cloud.example.org/openai/v1/chat/completions").mock(return_value=answer)
    openai = respx_mock.post("https://api.openai.com/v1/responses").mock(return_value=httpx.Response(500))
    registry = build_registry(
        ProvidersPolicy(
            openai_api_key="sk-openai",
            http=HttpPolicy(transport="httpx"),
            file=read_providers_file(FILE),
            environment={"HOUSE_KEY": "house-key", "CLOUD_KEY": "cloud-key", "TEAM": "red"},
        )
    )

    assert text_of(await collect(registry.resolve("house:big")[0].stream(REQUEST))) == "a"
    assert text_of(await collect(registry.resolve("cloud:big")[0].stream(REQUEST))) == "a"
    await outcome(registry.resolve("openai:gpt-5")[0].stream(REQUEST))
    await registry.aclose()

    sent = house.calls.last.request
    assert (sent.headers["authorization"], sent.headers["x-team"]) == ("Bearer house-key", "red-a")
    assert "stream_options" not in json.loads(sent.content)
    assert cloud.calls.last.request.headers["api-key"] == "cloud-key"
    assert "authorization" not in cloud.calls.last.request.headers
    assert openai.calls.last.request.headers["authorization"] == "Bearer sk-openai"
    assert registry.facts("openai:gpt-5").context_window == 400000


async def test_a_key_that_the_file_names_and_nobody_set_is_told() -> None:
    registry = build_registry(ProvidersPolicy(file=read_providers_file(FILE), environment={"TEAM": "red"}))

    with pytest.raises(ProviderUnavailableError, match="set HOUSE_KEY"):
        registry.resolve("house:big")
    assert registry.resolve("local:m")[0].name == "local"
    await registry.aclose()


def test_a_header_that_needs_what_is_not_set_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match="needs the variable TEAM"):
        build_registry(ProvidersPolicy(file=read_providers_file(FILE)))


@pytest.mark.parametrize(
    ("prices", "cost"),
    [(Prices(2.0, 10.0, 0.5), 0.0145), (Prices(2.0, 10.0), 0.016), (Prices(0.0), 0.0)],
)
def test_a_usage_costs_what_its_tokens_cost(prices: Prices, cost: float) -> None:
    usage = Usage(prompt_tokens=3000, completion_tokens=1000, cached_tokens=1000)

    assert prices.cost(usage) == pytest.approx(cost)
    assert ModelFacts().cost(usage) is None
