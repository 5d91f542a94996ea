"""Anthropic Messages."""

from typing import Final

from app.providers.base import ModelRequest
from app.providers.dialects.anthropic.body import AnthropicOptions, anthropic_body
from app.providers.dialects.anthropic.decoder import AnthropicDecoder

_VERSION: Final = "2023-06-01"


class AnthropicDialect:
    """See `app.providers.dialect.Dialect`."""

    def __init__(self, options: AnthropicOptions | None = None) -> None:
        self._options = options or AnthropicOptions()

    def path(self, request: ModelRequest) -> str:
        """See `Dialect.path`."""
        del request
        return "/messages"

    def headers(self, api_key: str | None) -> dict[str, str]:
        """See `Dialect.headers`."""
        headers = {"anthropic-version": _VERSION}
        return {**headers, "x-api-key": api_key} if api_key else headers

    def body(self, request: ModelRequest) -> dict[str, object]:
        """See `Dialect.body`."""
        return anthropic_body(request, self._options)

    def decoder(self, provider: str, secrets: tuple[str, ...]) -> AnthropicDecoder:
        """See `Dialect.decoder`."""
        return AnthropicDecoder(provider, secrets)

    def refused_field(self, message: str) -> str | None:
        """See `Dialect.refused_field`."""
        return "output_config" if "output_config" in message else None
