"""OpenAI-compatible Chat Completions: what OpenAI, Azure, vLLM, Ollama, llama.cpp, OpenRouter and many more speak."""

from app.providers.base import ModelRequest
from app.providers.compat import ChatCompat
from app.providers.dialects.chat.body import chat_body
from app.providers.dialects.chat.decoder import ChatDecoder
from app.providers.refusals import SAMPLING, Refusal, not_taken, refusal


class ChatDialect:
    """See `app.providers.dialect.Dialect`."""

    format_fields: tuple[str, ...] = ("response_format",)
    refusals: tuple[Refusal, ...] = (
        not_taken("reasoning_effort", "reasoning_effort"),
        refusal("response_format|json_schema", "response_format"),
        refusal("stream_options|include_usage", "stream_options"),
        not_taken("prompt_cache_key", "prompt_cache_key"),
        *SAMPLING,
    )

    def __init__(self, compat: ChatCompat) -> None:
        self._compat = compat

    def path(self, request: ModelRequest) -> str:
        """See `Dialect.path`."""
        del request
        return "/chat/completions"

    def headers(self, api_key: str | None) -> dict[str, str]:
        """See `Dialect.headers`; a local server needs no key."""
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

    def body(self, request: ModelRequest) -> dict[str, object]:
        """See `Dialect.body`."""
        return chat_body(request, self._compat)

    def decoder(self, provider: str, secrets: tuple[str, ...]) -> ChatDecoder:
        """See `Dialect.decoder`."""
        return ChatDecoder(provider, self._compat, secrets)
