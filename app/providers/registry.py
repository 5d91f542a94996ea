"""Finds the provider of a model id. A model id is `provider:model`; the model may hold colons itself."""

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

from app.domain.errors import ConfigurationError, ProviderUnavailableError
from app.domain.frozen import dataclass
from app.providers.base import Provider
from app.providers.calls import HttpPolicy
from app.providers.catalog import CATALOG, DialectName
from app.providers.compat import ChatCompat
from app.providers.config import ProviderPart, ProvidersFile, compat_of, expand
from app.providers.demo import DEMO_MODEL, DemoProvider
from app.providers.dialect import Dialect
from app.providers.dialects.anthropic import AnthropicDialect
from app.providers.dialects.chat import ChatDialect
from app.providers.dialects.gemini import GeminiDialect
from app.providers.dialects.responses import ResponsesDialect
from app.providers.embeddings import Embedder
from app.providers.facts import ModelFacts
from app.providers.http import ModelHttp
from app.providers.moderation import ModerationClient
from app.providers.offline import NAME as OFFLINE
from app.providers.offline import OfflineEmbedder, offline_embedder
from app.providers.provider import HttpProvider

SCRIPTED_MODEL: Final = f"scripted:{DEMO_MODEL}"


@dataclass(frozen=True, slots=True)
class ProvidersPolicy:
    """Which providers there are.

    Those of the catalogue always are; one whose key is missing says so when it is asked for. `openai_base_url` moves
    `openai` to a server of one's own, which may need no key. `environment` holds the keys by the names of their
    variables, and what the file's headers refer to; the two OpenAI fields go before it.
    """

    openai_api_key: str | None = field(default=None, repr=False)
    openai_base_url: str | None = None
    demo_piece_seconds: float = 0.015
    http: HttpPolicy = field(default_factory=HttpPolicy)
    file: ProvidersFile = field(default_factory=ProvidersFile)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


class ProviderRegistry:
    """Providers by name. `missing` tells for known names what to set so that they can be used.

    A provider that is missing its key is still found for a request that brings one. `facts` are by model id.
    """

    def __init__(
        self,
        providers: Iterable[Provider],
        missing: Mapping[str, str] | None = None,
        http: ModelHttp | None = None,
        *,
        facts: Mapping[str, ModelFacts] | None = None,
        chosen: Iterable[str] = (),
    ) -> None:
        self._providers = {provider.name: provider for provider in providers}
        self._missing = dict(missing or {})
        self._http = http
        self._facts = dict(facts or {})
        self.chosen = tuple(name for name in chosen if name not in self._missing)
        """Providers that can be used and that the operator set up: with a key, an address, or in the file."""
        self._offline: OfflineEmbedder | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the providers that can be used as they are set up."""
        return tuple(name for name in self._providers if name not in self._missing)

    def resolve(self, model_id: str, *, has_key: bool = False) -> tuple[Provider, str]:
        """Give the provider of `provider:model` and the model's name for it.

        `has_key` tells that the request brings its own key. Raises `ProviderUnavailableError` with a sentence that says
        what to set.
        """
        name, colon, model = model_id.partition(":")
        if not (colon and name and model):
            message = f"{model_id!r} is no model id: write provider:model, such as openai:gpt-5 or {SCRIPTED_MODEL}."
            raise ProviderUnavailableError(message)
        provider = self._providers.get(name)
        if name in self._missing and not (has_key and provider is not None):
            raise ProviderUnavailableError(self._missing[name], provider=name)
        if provider is None:
            known = ", ".join(sorted(self.names))
            message = f"There is no model provider {name!r}; the ones that are set up: {known}."
            raise ProviderUnavailableError(message, provider=name)
        return provider, model

    def embeddings(self, model_id: str, *, api_key: str | None = None) -> tuple[Embedder, str]:
        """Give what embeds texts with `provider:model`, and the model's name for it. A caller's own key may be given.

        `offline:wordllama` needs no server. Raises `ProviderUnavailableError` as `resolve` does, for a provider that
        is no server, and when the packages of the offline model are not installed.
        """
        name, _, model = model_id.partition(":")
        if name == OFFLINE and name not in self._providers:
            if self._offline is None:
                self._offline = offline_embedder()
            return self._offline, model
        provider, model = self._over_http(model_id, "embed texts", api_key)
        return provider.embeddings(api_key), model

    def moderation(self, model_id: str, *, api_key: str | None = None) -> tuple[ModerationClient, str]:
        """Give what judges texts with `provider:model`, and the model's name for it; raises as `embeddings` does."""
        provider, model = self._over_http(model_id, "judge texts", api_key)
        return provider.moderation(api_key), model

    async def models(self, name: str) -> tuple[str, ...]:
        """Ask a provider which models it has. Raises `ProviderError`, and what `embeddings` raises."""
        provider, _ = self._over_http(f"{name}:any", "list models", None)
        return await provider.models()

    def _over_http(self, model_id: str, deed: str, api_key: str | None) -> tuple[HttpProvider, str]:
        provider, model = self.resolve(model_id, has_key=api_key is not None)
        if not isinstance(provider, HttpProvider):
            message = f"The model provider {provider.name} is no server and can't {deed}."
            raise ProviderUnavailableError(message, provider=provider.name)
        return provider, model

    def facts(self, model_id: str) -> ModelFacts:
        """Give what is known of a model beside how to reach it."""
        return self._facts.get(model_id, ModelFacts())

    @property
    def described(self) -> tuple[str, ...]:
        """Model ids that something is known of."""
        return tuple(self._facts)

    async def open(self) -> None:
        """Get ready to call the providers that the operator set up; a first call would otherwise wait for it."""
        if self._http is not None and self.chosen:
            await self._http.open()

    async def aclose(self) -> None:
        """Close all providers and the connections that they share."""
        for provider in self._providers.values():
            await provider.aclose()
        if self._http is not None:
            await self._http.aclose()


def build_registry(policy: ProvidersPolicy, named: Mapping[str, str | None] | None = None) -> ProviderRegistry:
    """Make the providers of a process; call it inside the event loop that will use them.

    `named` has models by the settings that name them. Raises `ConfigurationError` when the file refers to what is not
    set, and when a setting names a provider that there is not. One that lacks only its key passes: a turn may bring it.
    """
    known = {*CATALOG, *policy.file.providers, SCRIPTED_MODEL.partition(":")[0], OFFLINE}
    for setting, model_id in (named or {}).items():
        name = model_id.partition(":")[0] if model_id else None
        if name is not None and name not in known:
            there = ", ".join(sorted(known - {OFFLINE}))
            message = (
                f"{setting} names the model provider {name!r}, which there is not. "
                f"Set it to a model of one of: {there}; or describe {name} in the file of FERMATA_PROVIDERS_FILE."
            )
            raise ConfigurationError(message)
    http = ModelHttp(policy.http)
    providers: list[Provider] = [DemoProvider(policy.demo_piece_seconds)]
    missing: dict[str, str] = {}
    for name in dict.fromkeys((*CATALOG, *policy.file.providers)):
        provider, lack = _build(name, policy.file.providers.get(name, ProviderPart()), policy, http)
        providers.append(provider)
        if lack is not None:
            missing[name] = lack
    described = {
        f"{name}:{model}": entry.facts()
        for name, part in policy.file.providers.items()
        for model, entry in part.models.items()
    }
    chosen = [*policy.file.providers, *(name for name in CATALOG if _has_own(name, policy))]
    return ProviderRegistry(providers, missing, http, facts=described, chosen=dict.fromkeys(chosen))


def _has_own(name: str, policy: ProvidersPolicy) -> bool:
    """Tell whether the environment sets up a known provider: with its key, or with its address."""
    own = name == "openai" and (policy.openai_api_key or policy.openai_base_url)
    return bool(own or policy.environment.get(CATALOG[name].key_variable or ""))


def _build(name: str, part: ProviderPart, policy: ProvidersPolicy, http: ModelHttp) -> tuple[Provider, str | None]:
    """Make one provider, and the sentence that says what it lacks, if it lacks something."""
    known = CATALOG.get(name)
    own_url = part.base_url or (policy.openai_base_url if name == "openai" else None)
    base_url = own_url or (known.base_url if known else None)
    if base_url is None:
        message = f"The provider {name} needs a base_url."
        raise ConfigurationError(message)
    variable = part.api_key_env or (known.key_variable if known else None)
    key = policy.environment.get(variable) if variable is not None else None
    if name == "openai" and part.api_key_env is None:
        key = policy.openai_api_key or key
    place = f"The provider {name}"
    provider = HttpProvider(
        name,
        base_url,
        key,
        http,
        dialect=_dialect(part.dialect or (known.dialect if known else "chat"), compat_of(part, base_url)),
        headers={header: expand(text, policy.environment, place) for header, text in part.headers.items()},
        key_header=part.key_header,
    )
    if key or variable is None or (own_url is not None and part.api_key_env is None):
        return provider, None
    other = ", or OPENAI_BASE_URL for a server of your own" if name == "openai" else ""
    return provider, f"The model provider {name} has no API key: set {variable}{other}."


def _dialect(name: DialectName, compat: ChatCompat) -> Dialect:
    match name:
        case "chat":
            return ChatDialect(compat)
        case "responses":
            return ResponsesDialect()
        case "anthropic":
            return AnthropicDialect()
        case "gemini":
            return GeminiDialect()
