"""Finds the provider of a model id. A model id is `provider:model`; the model may hold colons itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from app.domain.errors import ProviderUnavailableError
from app.providers.base import Provider
from app.providers.chat import ChatProvider
from app.providers.demo import DEMO_MODEL, DemoProvider
from app.providers.http import HttpPolicy, ModelHttp

OPENAI_BASE_URL: Final = "https://api.openai.com/v1"
SCRIPTED_MODEL: Final = f"scripted:{DEMO_MODEL}"


@dataclass(frozen=True, slots=True)
class ProvidersPolicy:
    """Which providers there are. Without a key, `openai` is there only when a base URL of one's own is set."""

    openai_api_key: str | None = field(default=None, repr=False)
    openai_base_url: str | None = None
    demo_piece_seconds: float = 0.015
    http: HttpPolicy = field(default_factory=HttpPolicy)


class ProviderRegistry:
    """Providers by name. `missing` tells for known names what to set so that they can be used.

    A provider that is missing its key is still found for a request that brings one.
    """

    def __init__(
        self,
        providers: Iterable[Provider],
        missing: Mapping[str, str] | None = None,
        http: ModelHttp | None = None,
    ) -> None:
        self._providers = {provider.name: provider for provider in providers}
        self._missing = dict(missing or {})
        self._http = http

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

    async def aclose(self) -> None:
        """Close all providers and the connections that they share."""
        for provider in self._providers.values():
            await provider.aclose()
        if self._http is not None:
            await self._http.aclose()


def build_registry(policy: ProvidersPolicy) -> ProviderRegistry:
    """Make the providers of a process; call it inside the event loop that will use them."""
    http = ModelHttp(policy.http)
    openai = ChatProvider("openai", policy.openai_base_url or OPENAI_BASE_URL, policy.openai_api_key, http)
    missing = {}
    if not policy.openai_api_key and not policy.openai_base_url:
        missing["openai"] = (
            "The model provider openai has no API key: set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own."
        )
    return ProviderRegistry([openai, DemoProvider(policy.demo_piece_seconds)], missing, http)
