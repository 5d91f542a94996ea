"""Model ids, the providers behind them, and the client that these share."""

import asyncio

import pytest

from app.domain.errors import ConfigurationError, ProviderUnavailableError
from app.domain.messages import Message
from app.providers.base import ModelRequest
from app.providers.calls import HttpPolicy
from app.providers.chat import ChatProvider
from app.providers.http import ModelHttp
from app.providers.registry import SCRIPTED_MODEL, ProviderRegistry, ProvidersPolicy, build_registry
from app.providers.scripted import ScriptedProvider
from tests.providers.reading import outcome


async def test_the_scripted_model_is_always_there() -> None:
    registry = build_registry(ProvidersPolicy())

    provider, model = registry.resolve(SCRIPTED_MODEL)

    assert (provider.name, model) == ("scripted", "demo")
    assert set(registry.names) == {"scripted", "ollama"}
    await registry.aclose()


async def test_openai_without_a_key_tells_what_to_set_unless_the_request_brings_one() -> None:
    registry = build_registry(ProvidersPolicy())

    with pytest.raises(ProviderUnavailableError, match="set OPENAI_API_KEY"):
        registry.resolve("openai:gpt-5")
    provider, model = registry.resolve("openai:gpt-5", has_key=True)
    assert (provider.name, model) == ("openai", "gpt-5")
    await registry.aclose()


@pytest.mark.parametrize(
    "policy",
    [ProvidersPolicy(openai_api_key="sk-1234567890"), ProvidersPolicy(openai_base_url="http://127.0.0.1:9/v1")],
)
async def test_a_key_or_an_address_of_ones_own_makes_openai_usable(policy: ProvidersPolicy) -> None:
    registry = build_registry(policy)

    assert set(registry.names) == {"openai", "scripted", "ollama"}
    assert registry.resolve("openai:gpt-5")[0].name == "openai"
    assert "sk-1234567890" not in repr(policy)
    await registry.aclose()


@pytest.mark.parametrize(
    ("name", "variable"), [("anthropic", "ANTHROPIC_API_KEY"), ("gemini", "GEMINI_API_KEY"), ("groq", "GROQ_API_KEY")]
)
async def test_providers_that_are_known_by_name_need_only_their_key(name: str, variable: str) -> None:
    without, given = build_registry(ProvidersPolicy()), build_registry(ProvidersPolicy(environment={variable: "k"}))

    with pytest.raises(ProviderUnavailableError, match=f"set {variable}"):
        without.resolve(f"{name}:m")
    assert given.resolve(f"{name}:m")[0].name == name
    await without.aclose()
    await given.aclose()


def test_a_model_may_hold_colons() -> None:
    registry = ProviderRegistry([ScriptedProvider(name="ollama")])

    assert registry.resolve("ollama:llama3:8b")[1] == "llama3:8b"


@pytest.mark.parametrize("model_id", ["", "gpt-5", ":gpt-5", "openai:"])
def test_what_is_no_model_id_is_told(model_id: str) -> None:
    with pytest.raises(ProviderUnavailableError, match="provider:model"):
        ProviderRegistry([]).resolve(model_id)


def test_an_unknown_provider_is_told_with_those_that_are_there() -> None:
    with pytest.raises(ProviderUnavailableError, match=r"no model provider 'nobody'.*scripted"):
        ProviderRegistry([ScriptedProvider()]).resolve("nobody:gpt-5")


@pytest.mark.parametrize("key", ["k", None])
async def test_the_client_is_made_before_a_first_call_only_where_a_provider_is_set_up(key: str | None) -> None:
    registry = build_registry(ProvidersPolicy(openai_api_key=key))
    assert registry._http is not None

    await registry.open()

    assert (registry._http._making is not None) == (key is not None)
    await registry.aclose()


async def test_whoever_asks_for_the_client_first_and_gives_up_takes_it_from_nobody() -> None:
    http = ModelHttp()
    first, second = asyncio.create_task(http.open()), asyncio.create_task(http.open())
    await asyncio.sleep(0)

    first.cancel()

    client = await second
    assert first.cancelled()
    assert await http.open() is client
    await http.aclose()
    assert client._client.is_closed


async def test_a_client_that_is_still_being_made_is_closed_too() -> None:
    http = ModelHttp()
    asking = asyncio.create_task(http.open())
    await asyncio.sleep(0)

    await http.aclose()

    assert (await asking)._client.is_closed


async def test_a_client_that_can_not_be_made_fails_the_calls_and_nothing_else() -> None:
    http = ModelHttp(HttpPolicy(proxies={"http://": "ftp://nowhere.invalid"}))

    events, error = await outcome(
        ChatProvider("far", "http://nowhere.invalid/v1", None, http).stream(ModelRequest("m", (Message("user", "hi"),)))
    )

    assert events == []
    assert error is not None
    assert error.reason == "transport"
    await http.aclose()


async def test_a_setting_that_names_a_provider_that_there_is_not_is_refused_by_its_name() -> None:
    named = {"FERMATA_DEFAULT_MODEL": "openai:gpt-5", "FERMATA_UTILITY_MODEL": "opneai:gpt-5"}

    with pytest.raises(ConfigurationError, match=r"^FERMATA_UTILITY_MODEL names the model provider 'opneai'"):
        build_registry(ProvidersPolicy(), named)


@pytest.mark.parametrize("model", [None, "openai:gpt-5", "ollama:m", SCRIPTED_MODEL, "offline:wordllama"])
async def test_a_setting_may_name_what_there_is_even_without_its_key(model: str | None) -> None:
    registry = build_registry(ProvidersPolicy(), {"FERMATA_DEFAULT_MODEL": model})

    assert "scripted" in registry.names
    await registry.aclose()
