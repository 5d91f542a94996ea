"""OpenAI Responses."""

from app.providers.base import ModelRequest
from app.providers.dialects.responses.body import responses_body
from app.providers.dialects.responses.decoder import ResponsesDecoder
from app.providers.refusals import SAMPLING, Refusal, not_taken, refusal


class ResponsesDialect:
    """See `app.providers.dialect.Dialect`."""

    format_fields: tuple[str, ...] = ("text",)
    refusals: tuple[Refusal, ...] = (
        refusal(r"encrypted[_ ]content|'include'", "include"),
        not_taken(r"reasoning(?:\.effort)?", "reasoning"),
        refusal(r"text\.format|json_schema", "text"),
        not_taken("prompt_cache_key", "prompt_cache_key"),
        *SAMPLING,
    )

    def path(self, request: ModelRequest) -> str:
        """See `Dialect.path`."""
        del request
        return "/responses"

    def headers(self, api_key: str | None) -> dict[str, str]:
        """See `Dialect.headers`; a local server needs no key."""
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

    def body(self, request: ModelRequest) -> dict[str, object]:
        """See `Dialect.body`."""
        return responses_body(request)

    def decoder(self, provider: str, secrets: tuple[str, ...]) -> ResponsesDecoder:
        """See `Dialect.decoder`."""
        return ResponsesDecoder(provider, secrets)
