"""Anthropic Messages."""

from typing import Final

from app.providers.base import ModelRequest
from app.providers.dialects.anthropic.body import AnthropicOptions, anthropic_body
from app.providers.dialects.anthropic.decoder import AnthropicDecoder
from app.providers.refusals import SAMPLING, Refusal, not_taken, refusal

_VERSION: Final = "2023-06-01"


class AnthropicDialect:
    """See `app.providers.dialect.Dialect`."""

    format_fields: tuple[str, ...] = ("output_config.format",)
    refusals: tuple[Refusal, ...] = (
        not_taken("thinking", "thinking"),
        not_taken("effort", "output_config.effort"),
        refusal("output_config|output_format|structured output", *format_fields),
        not_taken("eager_input_streaming", "tools.eager_input_streaming"),
        *SAMPLING,
    )

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
