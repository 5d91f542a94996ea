"""Settings: read once, checked, and every fault told in a sentence."""

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.bootstrap import running
from app.domain.errors import ConfigurationError
from app.providers.setup import set_up
from app.settings import Settings, SettingsError, is_loopback, load_settings, variable_names
from tests.api.serving import given

KEY = {"name": "ann", "sha256": sha256(b"secret").hexdigest(), "organization": "acme", "scopes": ["chat", "read"]}


@pytest.fixture(autouse=True)
def _clean_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in variable_names().values():
        monkeypatch.delenv(name, raising=False)


def faults_of() -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load_settings()
    return caught.value.faults


def test_the_defaults_are_usable_as_they_are() -> None:
    settings = load_settings()

    assert settings.host == "127.0.0.1"
    assert settings.port == 8000
    assert set_up(settings.models).roles.chat == "scripted:demo"


def test_each_setting_is_documented() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_a_misspelt_variable_is_refused_with_the_nearest_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERMATA_MAX_BODY_BITES", "1")

    assert faults_of() == (
        "FERMATA_MAX_BODY_BITES in the environment is not a setting: did you mean FERMATA_MAX_BODY_BYTES?",
    )


def test_a_variable_that_is_like_no_setting_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERMATA_QQQ", "1")

    assert "take it out" in faults_of()[0]


def test_a_misspelt_variable_in_the_env_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FERMATA_PROT=9\nSOMETHING_ELSE=1\n", encoding="utf-8")

    assert faults_of() == ("FERMATA_PROT in .env is not a setting: did you mean FERMATA_PORT?",)


def test_the_env_file_is_read(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FERMATA_PORT=9123\nOPENAI_API_KEY=k\n", encoding="utf-8")

    settings = load_settings()

    assert settings.port == 9123
    assert set_up(settings.models).roles.chat == "openai:gpt-4o-mini"


def test_all_faults_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERMATA_PORT", "many")
    monkeypatch.setenv("FERMATA_HSOT", "x")
    monkeypatch.setenv("FERMATA_DEFAULT_MODEL", "gpt")

    told = " ".join(faults_of())

    assert "FERMATA_PORT" in told
    assert "FERMATA_HSOT" in told
    assert "FERMATA_DEFAULT_MODEL" in told


def test_a_list_that_is_not_json_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERMATA_CORS_ORIGINS", "https://a.example")

    assert faults_of() == ("FERMATA_CORS_ORIGINS: this is not JSON; lists and objects are written as JSON.",)


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERMATA_DEFAULT_MODEL", "")
    monkeypatch.setenv("DATABASE_URL", "")

    settings = load_settings()

    assert settings.default_model is None
    assert settings.database_url is None


@pytest.mark.parametrize("host", ["::", "192.168.1.5", "fermata.example"])
def test_without_keys_only_this_machine_may_reach_the_service(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERMATA_HOST", host)

    (fault,) = faults_of()

    assert host in fault
    assert "FERMATA_API_KEYS" in fault


def test_with_keys_the_service_may_listen_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERMATA_HOST", "::")
    monkeypatch.setenv("FERMATA_API_KEYS", json.dumps([KEY]))

    assert load_settings().host == "::"


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("10.0.0.1", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, *, own: bool) -> None:
    assert is_loopback(host) is own


def test_two_keys_with_one_digest_are_refused() -> None:
    with pytest.raises(ValidationError, match="two keys share"):
        given(api_keys=[KEY, {**KEY, "name": "bob"}])


def test_a_key_with_an_unknown_scope_is_refused() -> None:
    with pytest.raises(ValidationError, match="scopes"):
        given(api_keys=[{**KEY, "scopes": ["everything"]}])


def test_every_origin_is_only_let_in_where_there_are_keys() -> None:
    with pytest.raises(ValidationError, match="name the origins"):
        given(cors_origins=["*"])
    assert given(cors_origins=["*"], api_keys=[KEY]).cors_origins == ["*"]


def test_an_origin_with_a_path_is_refused() -> None:
    with pytest.raises(ValidationError, match="is no origin"):
        given(cors_origins=["https://a.example/chat"])


def test_a_lease_that_ends_before_it_can_be_renewed_is_refused() -> None:
    with pytest.raises(ValidationError, match="twice"):
        given(lease_seconds=4, lease_renew_seconds=3)


def test_secrets_appear_in_no_printed_form_and_in_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:pass-word@h/d")
    assert "secret" not in repr(load_settings())
    assert "pass-word" not in repr(load_settings())

    monkeypatch.setenv("FERMATA_API_KEYS", json.dumps([{**KEY, "sha256": "the-key-itself"}]))
    assert "the-key-itself" not in " ".join(faults_of())


def _numbers(schema: object, path: str = "") -> Iterator[tuple[str, Mapping[str, object]]]:
    if isinstance(schema, dict):
        if schema.get("type") in {"number", "integer"}:
            yield path, schema
        for key, part in schema.items():
            yield from _numbers(part, f"{path}/{key}")
    elif isinstance(schema, list):
        for part in schema:
            yield from _numbers(part, path)


def test_every_share_price_and_time_has_an_upper_bound() -> None:
    schema = Settings.model_json_schema()
    times = re.compile("_(seconds|milliseconds|ms|hours|days)(/|$)")

    assert [
        path
        for path, number in _numbers(schema)
        if (number["type"] == "number" or times.search(path)) and not {"maximum", "exclusiveMaximum"} & set(number)
    ] == []


@pytest.mark.parametrize("value", ["inf", "nan", "1e300"])
def test_a_time_without_an_end_is_refused_by_name(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["LEASE_SECONDS", "EVENT_RETENTION_HOURS", "DRAIN_GRACE_SECONDS", "PERSONAS_RELOAD_SECONDS"]
    for name in names:
        monkeypatch.setenv(f"FERMATA_{name}", value)

    assert sorted(fault.partition(":")[0] for fault in faults_of()) == sorted(f"FERMATA_{name}" for name in names)


@pytest.mark.parametrize("url", ["mysql://u@127.0.0.1/x", "no address"])
async def test_an_address_past_the_pooler_that_is_none_is_refused_by_its_own_name(url: str) -> None:
    settings = given(database_url="postgresql://u@127.0.0.1:1/x", listen_database_url=url, auto_migrate=True)

    with pytest.raises(ConfigurationError, match=r"^FERMATA_LISTEN_DATABASE_URL "):
        async with running(settings):
            pass
