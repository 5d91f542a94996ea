"""A provider over HTTP: a dialect, an address, a key and the HTTP module put together."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import structlog

from app.domain.errors import ProviderError
from app.domain.generators import aclosing
from app.providers.base import ModelRequest, ProviderEvent, TextPiece, UsageReport
from app.providers.calls import HttpCall
from app.providers.dialect import Dialect
from app.providers.embeddings import EmbeddingClient
from app.providers.errors import secrets_of
from app.providers.forced import Reply
from app.providers.http import ModelHttp
from app.providers.moderation import ModerationClient
from app.providers.reasoning import only_own
from app.providers.refusals import has_field, refused_fields, without

MOST_APART: Final = 8
"""As many events of one read stay as the model cut them; of more, neighbouring pieces of text are told as one."""

_REFUSALS: Final = frozenset({400, 422})


class HttpProvider:
    """See `app.providers.base.Provider`. `api_key` is None for a server that asks for none.

    `key_header` is the header for the key where it is not the dialect's own, such as Azure's `api-key`.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None,
        http: ModelHttp,
        *,
        dialect: Dialect,
        headers: Mapping[str, str] | None = None,
        key_header: str | None = None,
    ) -> None:
        self.name = name
        self._base_url = base_url.rstrip("/")
        self._api_key = api_key
        self._http = http
        self._dialect = dialect
        self._headers = dict(headers or {})
        self._key_header = key_header
        self._refused: dict[str, set[str]] = {}
        self._log = structlog.get_logger("app.providers")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        """See `Provider.stream`.

        A server that refuses an optional field is asked once more without it, and that model never with it again. The
        form of the answer is the request's own: what comes in its place is tried anew with each request.
        """
        key = request.api_key or self._api_key
        secrets = secrets_of(key, self._api_key, *self._headers.values(), *request.extra_headers.values())
        own = only_own(request.messages, self.name, request.model)
        asked = request if own is request.messages else replace(request, messages=own)
        wanted, reply = asked, Reply()
        apart = 1 if self._http.gathers else MOST_APART
        while True:
            call = HttpCall(
                provider=self.name,
                url=self._base_url + self._dialect.path(request),
                headers={**self._key_headers(key), **self._headers, **request.extra_headers},
                body=partial(self._body, wanted),
                secrets=secrets,
                deadline=request.deadline,
            )
            decoder, output = self._dialect.decoder(self.name, secrets), False
            try:
                async with aclosing(self._http.stream(call, decoder)) as batches:
                    async for batch in batches:
                        output = output or not all(isinstance(event, UsageReport) for event in batch)
                        for event in reply.told(_joined(batch, apart)):
                            yield event
            except ProviderError as error:
                error.after_output = output
                error.usage = decoder.usage
                refused = self._refused_of(error, wanted)
                if refused and refused != self._dialect.format_fields:
                    self._refused.setdefault(request.model, set()).update(refused)
                    self._log.info("provider_refused_fields", provider=self.name, model=request.model, fields=refused)
                elif refused or (reply.form == "forced_tool" and error.status in _REFUSALS):
                    reply = reply.next(asked)
                    wanted = reply.asked(asked)
                else:
                    raise
            else:
                return

    def _body(self, request: ModelRequest) -> Mapping[str, Any]:
        """Give what is posted, without the fields that the model has refused."""
        body: Mapping[str, Any] = self._dialect.body(request)
        for path in self._refused.get(request.model, ()):
            body = without(body, path)
        return body

    def _refused_of(self, error: ProviderError, request: ModelRequest) -> tuple[str, ...]:
        """Give the fields that the refusal is about and that can be left out; none when it has to be told."""
        if error.status not in _REFUSALS:
            return ()
        fields = refused_fields(self._dialect.refusals, error.message)
        if fields == self._dialect.format_fields and not request.format_is_optional:
            return ()
        body = self._body(request)
        return fields if any(has_field(body, path) for path in fields) else ()

    def _key_headers(self, key: str | None) -> dict[str, str]:
        if self._key_header is None or key is None:
            return self._dialect.headers(key)
        return {**self._dialect.headers(None), self._key_header: key}

    async def models(self) -> tuple[str, ...]:
        """Ask the server which models it has; costs nothing. Raises `ProviderError`."""
        secrets = secrets_of(self._api_key, *self._headers.values())
        headers = {**self._key_headers(self._api_key), **self._headers}
        document = await self._http.ask(HttpCall(self.name, f"{self._base_url}/models", headers, None, secrets))
        found = document.get("data") or document.get("models") if isinstance(document, Mapping) else None
        named = (entry for entry in found or () if isinstance(entry, Mapping))
        ids = (str(entry.get("id") or entry.get("name") or "").removeprefix("models/") for entry in named)
        return tuple(name for name in ids if name)

    def embeddings(self, api_key: str | None = None) -> EmbeddingClient:
        """Give what embeds texts at the same address; servers of every dialect but Chat Completions may not have it.

        `api_key` replaces the configured key, here and in `moderation`.
        """
        key = api_key or self._api_key
        return EmbeddingClient(self.name, self._base_url, key, self._http, headers=self._own_headers(key))

    def moderation(self, api_key: str | None = None) -> ModerationClient:
        """Give what judges texts at the same address."""
        key = api_key or self._api_key
        return ModerationClient(self.name, self._base_url, key, self._http, headers=self._own_headers(key))

    def _own_headers(self, key: str | None) -> dict[str, str]:
        if self._key_header is None or key is None:
            return self._headers
        return {**self._headers, self._key_header: key}

    async def aclose(self) -> None:
        """See `Provider.aclose`; the connections belong to the HTTP module and are closed with it."""


def _joined(batch: list[ProviderEvent], apart: int) -> list[ProviderEvent]:
    """Make one text of neighbouring ones where a read brings many: whoever reads is behind, and each costs as much."""
    if len(batch) <= apart:
        return batch
    told: list[ProviderEvent] = []
    for event in batch:
        if told and isinstance(event, TextPiece) and isinstance(before := told[-1], TextPiece):
            told[-1] = TextPiece(before.text + event.text)
        else:
            told.append(event)
    return told
