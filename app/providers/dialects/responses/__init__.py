"""OpenAI Responses."""

from app.providers.base import ModelRequest
from app.providers.dialects.responses.body import responses_body
from app.providers.dialects.responses.decoder import ResponsesDecoder


class ResponsesDialect:
    """See `app.providers.dialect.Dialect`."""

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

    def refused_field(self, message: str) -> str | None:
        """See `Dialect.refused_field`: models that do not reason refuse an effort, and to include their reasoning."""
        if "reasoning.effort" in message or "'reasoning'" in message:
            return "reasoning"
        return "include" if "encrypted_content" in message or "'include'" in message else None
