"""The provider of the Chat Completions dialect."""

from collections.abc import Mapping

from app.providers.compat import ChatCompat, compat_for
from app.providers.dialects.chat import ChatDialect
from app.providers.http import ModelHttp
from app.providers.provider import HttpProvider


class ChatProvider(HttpProvider):
    """Any server that speaks Chat Completions under `base_url`; its quirks are guessed unless they are given."""

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None,
        http: ModelHttp,
        *,
        compat: ChatCompat | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            name, base_url, api_key, http, dialect=ChatDialect(compat or compat_for(base_url)), headers=headers
        )
