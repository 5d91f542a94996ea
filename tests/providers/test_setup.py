"""What follows from settings, the environment and the file of providers."""

from pathlib import Path

import pytest

from app.domain.errors import ConfigurationError
from app.providers.setting import ModelSettings
from app.providers.setup import set_up

FILE = """
providers:
  house:
    base_url: http://127.0.0.1:9/v1
    max_concurrent: 4
    models:
      big: {context_window: 32000}
limits: {attempts: 2, first_event_seconds: 7, idle_seconds: 8, connect_seconds: 9, total_seconds: 90}
roles: {chat: "house:big", utility: "house:small", embedding: "house:vectors"}
fallbacks: ["openai:gpt-5"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "providers.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("environment", "model"),
    [
        ({}, "scripted:demo"),
        ({"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b"}, "openai:gpt-4o-mini"),
        ({"ANTHROPIC_API_KEY": "b"}, "anthropic:claude-sonnet-5"),
    ],
)
def test_without_a_word_of_the_operator_the_keys_decide(environment: dict[str, str], model: str) -> None:
    roles = set_up(ModelSettings(environment=environment)).roles

    assert (roles.chat, roles.utility, roles.embedding) == (model, model, None)


def test_the_files_roles_hold_and_settings_go_before_them(file: Path) -> None:
    roles = set_up(ModelSettings(file=file)).roles
    assert (roles.chat, roles.utility, roles.embedding) == ("house:big", "house:small", "house:vectors")

    roles = set_up(ModelSettings(file=file, chat="a:b", utility="c:d", embedding="e:f")).roles
    assert (roles.chat, roles.utility, roles.embedding) == ("a:b", "c:d", "e:f")


def test_the_files_limits_reach_the_gateway_and_the_client(file: Path) -> None:
    setup = set_up(ModelSettings(file=file))
    http, gateway = setup.providers.http, setup.gateway

    assert (http.connect_seconds, http.first_event_seconds, http.idle_seconds) == (9, 7, 8)
    assert (gateway.attempts, gateway.total_seconds, gateway.fallbacks) == (2, 90, ("openai:gpt-5",))
    assert gateway.admitted_by == {"house": 4}
    assert setup.windows == {"house:big": 32000}


def test_there_is_a_connection_for_every_request_that_is_let_in(file: Path) -> None:
    setup = set_up(ModelSettings(file=file))

    assert setup.providers.http.max_connections > 9 * setup.gateway.admitted + 4


def test_keys_and_proxies_of_the_environment_are_used() -> None:
    setup = set_up(ModelSettings(environment={"GEMINI_API_KEY": "g", "HTTPS_PROXY": "http://proxy:3128"}))

    assert setup.providers.environment["GEMINI_API_KEY"] == "g"
    assert setup.providers.http.proxies["https://"] == "http://proxy:3128"


def test_a_file_that_is_not_there_is_told_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="FERMATA_PROVIDERS_FILE"):
        set_up(ModelSettings(file=tmp_path / "none.yaml"))
