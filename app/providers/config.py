"""The file of providers: addresses, keys by the name of their variable, quirks, limits, prices, roles.

YAML, read once at start; it holds no secret itself. Example:

    providers:
      openai:
        dialect: responses
        models:
          gpt-5: {context_window: 400000, prices: {input: 1.25, cached_input: 0.125, output: 10}}
      house:
        base_url: http://llm.internal:8000/v1
        api_key_env: HOUSE_KEY
        headers: {x-team: "${TEAM}"}
        quirks: {include_usage: false}
        max_concurrent: 8
    limits: {attempts: 3, first_event_seconds: 120, idle_seconds: 60}
    roles: {chat: "openai:gpt-5", utility: "house:small", embedding: "openai:text-embedding-3-small"}
    fallbacks: ["house:big"]
"""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from app.domain.errors import ConfigurationError
from app.providers.admission import DEFAULT_LIMIT
from app.providers.catalog import CATALOG, DialectName
from app.providers.compat import PRESETS, ChatCompat, compat_for
from app.providers.facts import ModelFacts, Prices

ModelId = Annotated[str, Field(pattern=r"^[^:\s]+:\S+$")]
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class PricesPart(_Part):
    """US dollars for a million tokens. Without a cached price, cached tokens cost what others do."""

    input: float = Field(ge=0)
    output: float = Field(default=0, ge=0)
    cached_input: float | None = Field(default=None, ge=0)


class ModelPart(_Part):
    """What is known of one model."""

    context_window: int | None = Field(default=None, ge=1)
    max_output_tokens: int | None = Field(default=None, ge=1)
    tokenizer: str | None = None
    prices: PricesPart | None = None

    def facts(self) -> ModelFacts:
        """Give the facts."""
        prices = None
        if self.prices is not None:
            prices = Prices(self.prices.input, self.prices.output, self.prices.cached_input)
        return ModelFacts(self.context_window, self.max_output_tokens, self.tokenizer, prices)


class ProviderPart(_Part):
    """One provider. What is left out is taken from what is known of its name, if it is a known one."""

    dialect: DialectName | None = None
    base_url: Annotated[str, Field(pattern=r"^https?://\S+$")] | None = None
    api_key_env: str | None = None
    key_header: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    preset: str | None = None
    quirks: dict[str, Any] = Field(default_factory=dict)
    max_concurrent: int | None = Field(default=None, ge=1)
    models: dict[str, ModelPart] = Field(default_factory=dict)


class RolesPart(_Part):
    """Which model does what, as `provider:model`."""

    chat: ModelId | None = None
    utility: ModelId | None = None
    embedding: ModelId | None = None


class LimitsPart(_Part):
    """What bounds the requests to all providers. A request's attempts share `total_seconds`."""

    attempts: int = Field(default=3, ge=1, le=10)
    connect_seconds: float = Field(default=10, gt=0)
    first_event_seconds: float = Field(default=120, gt=0)
    idle_seconds: float = Field(default=60, gt=0)
    total_seconds: float = Field(default=600, gt=0)
    max_concurrent: int = Field(default=DEFAULT_LIMIT, ge=1)


class ProvidersFile(_Part):
    """The whole file."""

    providers: dict[Annotated[str, Field(pattern="^[A-Za-z0-9_-]+$")], ProviderPart] = Field(default_factory=dict)
    limits: LimitsPart = Field(default_factory=LimitsPart.model_construct)
    roles: RolesPart = Field(default_factory=RolesPart.model_construct)
    fallbacks: tuple[ModelId, ...] = ()

    def facts(self, model_id: str) -> ModelFacts:
        """Give what the file says of a model; nothing is known of others."""
        name, _, model = model_id.partition(":")
        provider = self.providers.get(name)
        entry = provider.models.get(model) if provider is not None else None
        return entry.facts() if entry is not None else ModelFacts()


def read_providers_file(text: str, place: str = "the file of providers") -> ProvidersFile:
    """Read the file. Raises `ConfigurationError` that names the place and what is wrong."""
    try:
        document = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        message = f"{place} is not YAML: {' '.join(str(error).split())[:200]}"
        raise ConfigurationError(message) from None
    try:
        read = ProvidersFile.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"]) or "its top"
        message = f"{place} is not right at {where}: {first['msg']}"
        raise ConfigurationError(message) from None
    for name, provider in read.providers.items():
        if provider.base_url is None and name not in CATALOG:
            message = f"{place}: the provider {name} needs a base_url."
            raise ConfigurationError(message)
        compat_of(provider, provider.base_url or CATALOG[name].base_url, place)
    return read


def compat_of(provider: ProviderPart, base_url: str, place: str = "the file of providers") -> ChatCompat:
    """Give the quirks of a server: its preset, or the guess from its address, and what the file says over it."""
    if provider.preset is not None and provider.preset not in PRESETS:
        message = f"{place}: there is no preset {provider.preset!r}; there are {', '.join(PRESETS)}."
        raise ConfigurationError(message)
    base = compat_for(base_url) if provider.preset is None else PRESETS[provider.preset]
    if not provider.quirks:
        return base
    known = asdict(base)
    for name in provider.quirks:
        if name not in known:
            message = f"{place}: there is no quirk {name!r}; there are {', '.join(known)}."
            raise ConfigurationError(message)
    try:
        return TypeAdapter(ChatCompat).validate_python({**known, **provider.quirks})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        message = f"{place}: the quirk {first['loc'][0]} is not right: {first['msg']}"
        raise ConfigurationError(message) from None


def expand(text: str, environment: Mapping[str, str], place: str) -> str:
    """Put in the values of variables. Raises `ConfigurationError` for one that is not set."""

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in environment:
            message = f"{place} needs the variable {name}, and it is not set."
            raise ConfigurationError(message)
        return environment[name]

    return _VARIABLE.sub(value, text)
