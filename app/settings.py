"""Settings: the environment and `.env`, read once, checked, and explained.

Every variable begins with `FERMATA_`, except those that the whole world names the same way (`DATABASE_URL` and the
providers' keys). Lists and objects are JSON. A variable with our prefix that is not known is refused, since a
misspelt limit is worse than none.
"""

import difflib
import ipaddress
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, DotEnvSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as SourceError

from app.conversation.setting import YEAR, RollingSummarySetting
from app.domain.language import LanguagePolicy
from app.guardrails.options import GuardrailSettings
from app.providers.setting import ModelSettings
from app.turn.preparation.setting import PreparationSettings

PREFIX: Final = "FERMATA_"
ENV_FILE: Final = ".env"

Seconds = Annotated[float, Field(gt=0, le=YEAR)]
ModelId = Annotated[str, Field(pattern="^[^:\\s]+:\\S+$")]


class ApiKeySetting(BaseModel):
    """One API key: its name, its SHA-256, the organization it acts in, and what it may do."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, defer_build=True)

    name: str = Field(min_length=1, max_length=128, description="Names the key in logs; also its default user id.")
    sha256: str = Field(pattern="^[0-9a-fA-F]{64}$", description='SHA-256 of the key: printf %s "$KEY" | sha256sum')
    organization: str = Field(default="", max_length=128, description="The organization that the key acts in.")
    scopes: frozenset[Literal["chat", "read", "operator"]] = Field(
        default=frozenset({"chat", "read"}),
        description="`chat` runs turns and changes conversations; `read` reads; `operator` looks behind the scenes.",
    )


class LanguageSetting(BaseModel):
    """Which languages are served; without `supported` all are. `detect` looks at inputs whose language is not told."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    default: str = Field(default="en", min_length=2, max_length=64)
    supported: list[str] = []
    fallbacks: list[str] = []
    pivot: str | None = None
    detect: bool = True


class Settings(GuardrailSettings, PreparationSettings, BaseSettings):
    """All settings. A field's description is its documentation; README lists the same."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=ENV_FILE,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
        populate_by_name=True,
        defer_build=True,
    )

    host: str = Field(default="127.0.0.1", description="Address to listen on; only loopback without API keys.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    allowed_hosts: list[str] = Field(
        default_factory=list,
        description="Further values of the Host header that are taken while there are no API keys (JSON list).",
    )
    cors_origins: list[str] = Field(
        default_factory=list, description="Origins whose pages may call the service (JSON list)."
    )
    api_keys: list[ApiKeySetting] = Field(
        default_factory=list,
        description="Keys that may call: JSON list of {name, sha256, organization, scopes}. None: loopback only.",
    )

    data_dir: Path = Field(
        default=Path(".fermata"), description="Where the embedded Postgres keeps its data and its socket."
    )
    database_url: SecretStr | None = Field(
        default=None, validation_alias="DATABASE_URL", description="A Postgres to use instead of the embedded one."
    )
    database_pool_size: int = Field(default=10, ge=2, le=1000, description="Connections that a process may hold.")
    database_pooler: Literal["none", "transaction"] = Field(
        default="none",
        description="`transaction` when DATABASE_URL leads to a pooler such as PgBouncer in transaction mode.",
    )
    listen_database_url: SecretStr | None = Field(
        default=None,
        description="The same database without a pooler, for LISTEN and migrations; by default DATABASE_URL.",
    )
    auto_migrate: bool | None = Field(
        default=None, description="Migrate at start; when not set, only the embedded Postgres is migrated."
    )

    default_model: ModelId | None = Field(
        default=None,
        description="`provider:model` for personas that name none; when not set, it follows from the keys there are.",
    )
    utility_model: ModelId | None = Field(
        default=None, description="`provider:model` for small work, such as summaries; else the default model."
    )
    embedding_model: ModelId | None = Field(
        default=None, description="`provider:model` that embeds texts; without one, nothing is embedded."
    )
    providers_file: Path | None = Field(
        default=None, description="YAML file of providers: addresses, keys by variable, prices, fallbacks, roles."
    )
    openai_api_key: SecretStr | None = Field(
        default=None, validation_alias="OPENAI_API_KEY", description="Key for the provider `openai`."
    )
    openai_base_url: str | None = Field(
        default=None,
        validation_alias="OPENAI_BASE_URL",
        description="Address of the provider `openai`, or of a server that speaks the same protocol.",
    )
    anthropic_api_key: SecretStr | None = Field(
        default=None, validation_alias="ANTHROPIC_API_KEY", description="Key for the provider `anthropic`."
    )
    http_transport: Literal["aiohttp", "httpx"] = Field(
        default="aiohttp", description="What carries requests to providers below httpx."
    )

    default_persona_id: str = Field(default="demo", min_length=1, description="Persona of a turn that names none.")
    personas_dir: Path | None = Field(
        default=None, description="Folder of persona files; when not set, those that ship with the service."
    )
    personas_reload_seconds: float = Field(
        default=2, ge=0, le=YEAR, description="How often FERMATA_PERSONAS_DIR is looked at for changes; 0 is never."
    )
    language: LanguageSetting | None = Field(
        default=None,
        description="Languages that turns are settled on: a JSON object with `default`, `supported`, `fallbacks`, "
        "`pivot` and `detect`. When not set, no language is settled.",
    )
    tenant_mode: Literal["multi_tenant", "single_tenant"] = Field(
        default="multi_tenant", description="Whether organizations are told apart or all calls belong to one."
    )
    default_organization_id: str | None = Field(
        default=None, max_length=128, description="The organization of `single_tenant`, for calls that name none."
    )
    strict_organization_isolation: bool = Field(
        default=False,
        description="In `single_tenant`, refuse calls that name another organization than the default one.",
    )

    max_body_bytes: int = Field(default=10 * 2**20, ge=1024, description="Largest request body.")
    max_result_bytes: int = Field(default=4 * 2**20, ge=1024, description="Largest output of one host tool, as JSON.")
    max_history_length_messages: int = Field(
        default=100, ge=0, description="How many messages of a conversation are sent to a model; 0 sends all."
    )
    messages_to_keep_verbatim_head: int = Field(
        default=2, ge=0, description="How many of a conversation's first messages are always sent."
    )
    messages_to_keep_verbatim_tail: int = Field(
        default=10, ge=1, description="How many of the newest messages a summary at the limit leaves out."
    )
    enable_automatic_summarization: bool = Field(
        default=False, description="Past the limit, summarize the oldest messages instead of leaving them out."
    )
    summarization_chunk_size: int = Field(
        default=20, ge=2, le=1000, description="How many messages a summary at the limit takes at least."
    )
    rolling_summary_compaction: RollingSummarySetting = Field(
        default_factory=RollingSummarySetting,
        description="The rolling summary: a JSON object of its settings, with profiles by mode. Off unless enabled.",
    )
    context_windows: dict[str, PositiveInt] = Field(
        default_factory=dict,
        description="Context windows in tokens by `provider:model` (JSON object), for models that are not known.",
    )
    default_context_window: int = Field(
        default=128_000, ge=1024, description="Context window in tokens of a model that nothing is known of."
    )
    max_tool_call_iterations: int = Field(default=5, ge=1, le=100, description="Tool rounds of one turn.")
    max_waiting_turns: int = Field(
        default=10, ge=1, le=1000, description="How many turns may wait for one conversation (on_busy: wait)."
    )
    reasoning_trace_entries: int = Field(
        default=500, ge=1, le=10_000, description="How many entries the reasoning trace of a session keeps."
    )
    keep_prompts: bool = Field(
        default=False,
        description="Keep what models are told, without secrets, for GET /v1/streams/{id}/prompt (scope `operator`).",
    )
    turn_timeout_seconds: Seconds = Field(default=600, description="Longest time for one operation.")
    tool_timeout_seconds: Seconds = Field(default=30, description="Longest time for one call of a runtime tool.")
    max_document_characters: int = Field(
        default=1_000_000, ge=1000, description="Longest text of one document that is taken in."
    )
    tools_file: Path | None = Field(
        default=None,
        description="YAML file of tools that are HTTP calls, of MCP servers, and of the hosts that they may reach.",
    )
    disabled_tools: list[str] = Field(
        default_factory=list,
        description="Runtime tools that no persona is offered (JSON list).",
    )
    tool_concurrency: int = Field(default=10, ge=1, le=100, description="Runtime tools of one round that run at once.")
    enable_conversational_persistence: bool = Field(
        default=True, description="Store the messages of conversations; pauses and events are stored anyway."
    )

    heartbeat_seconds: Seconds = Field(default=15, description="Silence after which a stream sends a comment.")
    flush_milliseconds: Seconds = Field(default=50, le=1000, description="How often new events are stored.")
    gather_milliseconds: float = Field(
        default=75, ge=0, le=1000, description="How long text of a quick model is gathered to be told as one; 0: never."
    )
    event_retention_hours: Seconds = Field(default=24, description="How long a closed stream can be replayed.")
    faded_memory_days: float = Field(
        default=30, ge=0, le=36500, description="How long a memory that has faded is kept after it was last told."
    )
    wakeups: Literal["pg", "poll"] = Field(
        default="pg", description="How processes tell each other of new events: LISTEN and NOTIFY, or by looking."
    )
    blocked_send_seconds: Seconds = Field(
        default=60, description="How long a reader may take nothing before it is cut."
    )
    keep_alive_seconds: int = Field(
        default=75,
        ge=1,
        le=YEAR,
        description="How long an idle connection is kept. Longer than a proxy keeps its own, else a request can meet"
        " a connection that is just being closed; most proxies keep theirs for 60.",
    )
    max_readers_per_stream: int = Field(default=2000, ge=1, description="Readers of one stream in one process.")
    max_readers_per_user: int = Field(default=500, ge=1, description="Open event streams of one user in one process.")
    max_readers: int = Field(default=10_000, ge=1, description="Open event streams in one process.")
    lease_renew_seconds: Seconds = Field(default=3, description="How often a process says that it is alive.")
    lease_seconds: Seconds = Field(default=10, description="Silence after which others take over its operations.")
    max_reruns: int = Field(
        default=4, ge=1, description="Operations of processes that have gone that one process runs again at a time."
    )
    drain_grace_seconds: float = Field(
        default=30, ge=0, le=YEAR, description="How long running operations and their readers may go on after SIGTERM."
    )

    metrics: bool = Field(
        default=False,
        description="Count what is done, and show it at `GET /metrics` to keys of the scope `operator`.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Least level logged.")
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="`auto` is JSON unless standard output is a terminal."
    )

    _environment: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @field_validator("api_keys")
    @classmethod
    def _keys_differ(cls, keys: list[ApiKeySetting]) -> list[ApiKeySetting]:
        if len({key.name for key in keys}) < len(keys) or len({key.sha256.lower() for key in keys}) < len(keys):
            message = "two keys share a name or a digest; give each key its own"
            raise ValueError(message)
        return keys

    @field_validator("cors_origins")
    @classmethod
    def _origins_are_origins(cls, origins: list[str]) -> list[str]:
        for origin in origins:
            scheme, separator, rest = origin.partition("://")
            if origin != "*" and (scheme not in {"http", "https"} or not separator or not rest or "/" in rest):
                message = f"{origin!r} is no origin; write it as https://example.org, without a path"
                raise ValueError(message)
        return origins

    @model_validator(mode="after")
    def _closed_to_strangers(self) -> "Settings":
        if not self.api_keys and not is_loopback(self.host):
            message = (
                f"{PREFIX}HOST is {self.host!r}, which others can reach, and there are no API keys: set "
                f"{PREFIX}API_KEYS (a JSON list of name, sha256, organization, scopes), or listen on 127.0.0.1"
            )
            raise ValueError(message)
        if not self.api_keys and "*" in self.cors_origins:
            message = f"{PREFIX}CORS_ORIGINS lets every page in, and there are no API keys: name the origins"
            raise ValueError(message)
        if self.lease_seconds < 2 * self.lease_renew_seconds:
            message = f"{PREFIX}LEASE_SECONDS must be at least twice {PREFIX}LEASE_RENEW_SECONDS"
            raise ValueError(message)
        return self

    def beside(self, variables: Mapping[str, str | None]) -> "Settings":
        """Keep the variables that stand beside our own: keys of providers by their usual names, and proxies."""
        self._environment = {name: value for name, value in variables.items() if value}
        return self

    @property
    def language_policy(self) -> LanguagePolicy | None:
        """The languages as the runtime is told of them."""
        if self.language is None:
            return None
        told = self.language
        return LanguagePolicy(told.default, tuple(told.supported), tuple(told.fallbacks), told.pivot, told.detect)

    @property
    def models(self) -> ModelSettings:
        """The part that is about models, with the keys of all providers and the proxies of the environment."""
        keys = {"OPENAI_API_KEY": self.openai_api_key, "ANTHROPIC_API_KEY": self.anthropic_api_key}
        own = {name: key.get_secret_value() for name, key in keys.items() if key is not None}
        return ModelSettings(
            file=self.providers_file,
            environment={**self._environment, **own},
            openai_base_url=self.openai_base_url,
            transport=self.http_transport,
            gather_seconds=self.gather_milliseconds / 1000,
            chat=self.default_model,
            utility=self.utility_model,
            embedding=self.embedding_model,
        )


class SettingsError(Exception):
    """The settings can't be used; `faults` has one sentence for each thing to correct."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        """Keep the sentences."""
        super().__init__(" ".join(faults))
        self.faults = faults


def load_settings() -> Settings:
    """Read the environment and `.env`; raises SettingsError that names every fault."""
    faults = list(_unknown(os.environ, "the environment"))
    in_file = DotEnvSettingsSource(Settings, env_file=ENV_FILE, case_sensitive=True).env_vars
    faults += _unknown(in_file, ENV_FILE)
    try:
        settings = Settings().beside({**in_file, **os.environ})
    except ValidationError as error:
        faults += [_sentence(fault["loc"], fault["msg"]) for fault in error.errors(include_input=False)]
    except SourceError as error:
        faults.append(_source_sentence(str(error)))
    else:
        if not faults:
            return settings
    raise SettingsError(tuple(faults))


def variable_names() -> dict[str, str]:
    """Give the environment variable of each field."""
    return {
        name: field.validation_alias if isinstance(field.validation_alias, str) else PREFIX + name.upper()
        for name, field in Settings.model_fields.items()
    }


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _unknown(variables: Mapping[str, str | None], where: str) -> Iterator[str]:
    known = set(variable_names().values())
    for name in sorted(variables):
        if not name.upper().startswith(PREFIX) or name.upper() in known:
            continue
        rest = {other.removeprefix(PREFIX) for other in known if other.startswith(PREFIX)}
        near = difflib.get_close_matches(name.upper().removeprefix(PREFIX), rest, n=1)
        hint = f"did you mean {PREFIX}{near[0]}?" if near else "take it out, or see .env.example for those there are."
        yield f"{name} in {where} is not a setting: {hint}"


def _source_sentence(text: str) -> str:
    """Say which variable is not the JSON that it must be; the source's own words name only the field."""
    named = [variable for name, variable in variable_names().items() if f'"{name}"' in text]
    return f"{' '.join(named) or text}: this is not JSON; lists and objects are written as JSON."


def _sentence(place: tuple[int | str, ...], message: str) -> str:
    text = message.removeprefix("Value error, ").rstrip(".")
    if not place:
        return f"{text}."
    names = variable_names()
    first = str(place[0])
    inside = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place[1:])
    return f"{names.get(first, first)}{inside}: {text}."
