"""OpenAI-compatible Chat Completions: what OpenAI, Azure, vLLM, Ollama, llama.cpp, OpenRouter and many more speak."""

from app.providers.base import ModelRequest
from app.providers.compat import ChatCompat
from app.providers.dialects.chat.body import chat_body
from app.providers.dialects.chat.decoder import ChatDecoder


class ChatDialect:
    """See `app.providers.dialect.Dialect`."""

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

    def refused_field(self, message: str) -> str | None:
        """See `Dialect.refused_field`: some servers know neither usage in the stream nor an effort."""
        if "reasoning_effort" in message:
            return "reasoning_effort"
        if "response_format" in message or "json_schema" in message:
            return "response_format"
        return "stream_options" if "stream_options" in message or "include_usage" in message else None
