"""Gemini `streamGenerateContent`."""

from urllib.parse import quote

from app.providers.base import ModelRequest
from app.providers.dialects.gemini.body import gemini_body
from app.providers.dialects.gemini.decoder import GeminiDecoder
from app.providers.refusals import Refusal, refusal


class GeminiDialect:
    """See `app.providers.dialect.Dialect`."""

    format_fields: tuple[str, ...] = ("generationConfig.responseMimeType", "generationConfig.responseJsonSchema")
    refusals: tuple[Refusal, ...] = (
        refusal(r"thinking[_ ]?(?:level|budget|config)", "generationConfig.thinkingConfig"),
        refusal(r"response[_ ]?(?:mime[_ ]?type|(?:json[_ ]?)?schema)", *format_fields),
    )

    def path(self, request: ModelRequest) -> str:
        """See `Dialect.path`; without `alt=sse` the answer would be one JSON array."""
        return f"/models/{quote(request.model, safe='')}:streamGenerateContent?alt=sse"

    def headers(self, api_key: str | None) -> dict[str, str]:
        """See `Dialect.headers`."""
        return {"x-goog-api-key": api_key} if api_key else {}

    def body(self, request: ModelRequest) -> dict[str, object]:
        """See `Dialect.body`."""
        return gemini_body(request)

    def decoder(self, provider: str, secrets: tuple[str, ...]) -> GeminiDecoder:
        """See `Dialect.decoder`."""
        return GeminiDecoder(provider, secrets)
