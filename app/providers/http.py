"""The one module that owns HTTP to model providers: deadlines, content types, draining, closing, errors.

The client is httpx's with aiohttp underneath, or httpx's own transport where a setting or a test asks for it. Nothing
that either of them raises leaves this module: `ProviderError` does, without the request that it was about.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final, Literal, cast

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from app.domain.errors import ProviderError
from app.providers.base import ProviderEvent
from app.providers.dialect import Decoder
from app.providers.errors import failure, from_response, in_band, shown
from app.providers.faults import fault_of
from app.providers.sse import DEFAULT_LIMIT, EventTooLargeError, RawEvent, SseSplitter
from app.providers.wire import dumps, is_whole, loads

_ACCEPTED_TYPES: Final = frozenset({"", "text/event-stream", "text/plain", "application/octet-stream"})
_DRAINED_BYTES: Final = 1 << 20
_OK: Final = range(200, 300)


@dataclass(frozen=True, slots=True)
class HttpPolicy:
    """Limits of the calls to providers; seconds and bytes.

    `first_event` counts from the start of the request, `idle` from the last event: comments and headers reset neither.
    `tail` is how long to wait for what may follow a whole answer, `drain` how long for the end after the last event.
    `max_connections` must be above what is admitted at a time, so that nothing ever waits for a connection.
    """

    transport: Literal["aiohttp", "httpx"] = "aiohttp"
    connect_seconds: float = 10.0
    first_event_seconds: float = 120.0
    idle_seconds: float = 60.0
    tail_seconds: float = 5.0
    drain_seconds: float = 0.1
    whole_seconds: float = 120.0
    max_connections: int = 1000
    keepalive_seconds: float = 30.0
    event_bytes: int = DEFAULT_LIMIT
    error_bytes: int = 64 * 1024
    verify_tls: bool = True
    proxies: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    """Proxy addresses by pattern, see `app.providers.proxies`; they may hold a password."""


@dataclass(frozen=True, slots=True)
class HttpCall:
    """One request to a provider: a POST, or a GET where there is no body. Its secrets are in no `repr`."""

    provider: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: Mapping[str, Any] | None = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    deadline: float = math.inf
    """Time of the event loop by which the answer must be whole."""


class ModelHttp:
    """One HTTP client for all providers of a process. Use it inside the event loop that made it."""

    def __init__(self, policy: HttpPolicy | None = None) -> None:
        self._policy = policy or HttpPolicy()
        self._client = httpx.AsyncClient(
            transport=_transport(self._policy),
            mounts={
                pattern: None if proxy is None else _transport(self._policy, httpx.Proxy(proxy))
                for pattern, proxy in self._policy.proxies.items()
            },
            # Cookies that one caller's answer set must not go out with another's request.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            trust_env=False,
            timeout=httpx.Timeout(None, connect=self._policy.connect_seconds, pool=self._policy.connect_seconds),
            headers={"accept-encoding": "identity", "user-agent": "fermata"},
            follow_redirects=False,
        )

    async def stream(self, call: HttpCall, decoder: Decoder) -> AsyncGenerator[list[ProviderEvent], None]:
        """Send the call and give what the decoder makes of the answer, one list for each read that gave something.

        Raises `ProviderError` alone. Closing the generator, or cancelling its reader, closes the socket, unless the
        answer was read to its end.
        """
        loop = asyncio.get_running_loop()
        first_deadline = min(loop.time() + self._policy.first_event_seconds, call.deadline)
        response = await self._open(call, {"accept": "text/event-stream"}, first_deadline)
        try:
            await self._expect_events(call, response)
            async with aclosing(_bytes_of(response)) as body:
                async with aclosing(self._read(call, body, decoder, first_deadline)) as batches:
                    async for batch in batches:
                        yield batch
                if decoder.done:
                    await self._drain(body)
        finally:
            await _close(response)
        if last := decoder.end():
            yield last

    async def ask(self, call: HttpCall) -> Any:
        """Send the call and give the JSON document that it answers with. Raises `ProviderError` alone."""
        loop = asyncio.get_running_loop()
        deadline = min(loop.time() + self._policy.whole_seconds, call.deadline)
        response = await self._open(call, {"accept": "application/json"}, deadline)
        try:
            body = await self._body(call, response, self._policy.event_bytes, deadline)
        finally:
            await _close(response)
        if response.status_code not in _OK:
            raise from_response(call.provider, response.status_code, response.headers, body, call.secrets)
        try:
            document = loads(body)
        except ValueError:
            document = None
        if document is None:
            raise failure("protocol", call.provider, f"The model provider {call.provider} answered without JSON.")
        if (error := in_band(call.provider, document, call.secrets)) is not None:
            raise error
        return document

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _open(self, call: HttpCall, headers: Mapping[str, str], deadline: float) -> httpx.Response:
        fault: ProviderError
        try:
            request = self._request(call, headers)
            async with asyncio.timeout_at(deadline):
                return await self._client.send(request, stream=True)
        except Exception as error:  # noqa: BLE001 - whatever the client raises becomes a ProviderError here
            fault = fault_of(error, call.provider, call.url, opening=True)
        # Raised out here, so that the error does not carry the client's own, which holds the request and its key.
        raise fault

    def _request(self, call: HttpCall, headers: Mapping[str, str]) -> httpx.Request:
        sent = {**headers, **call.headers}
        if call.body is None:
            return self._client.build_request("GET", call.url, headers=sent)
        sent = {"content-type": "application/json", **sent}
        return self._client.build_request("POST", call.url, content=dumps(call.body), headers=sent)

    async def _expect_events(self, call: HttpCall, response: httpx.Response) -> None:
        """Refuse an answer that is no stream of events, with the error that its body tells of, if it does."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code in _OK and kind in _ACCEPTED_TYPES:
            return
        deadline = asyncio.get_running_loop().time() + self._policy.tail_seconds
        body = await self._body(call, response, self._policy.error_bytes, deadline)
        if response.status_code not in _OK:
            raise from_response(call.provider, response.status_code, response.headers, body, call.secrets)
        try:
            told = in_band(call.provider, loads(body), call.secrets)
        except ValueError:
            told = None
        if told is not None:
            raise told
        message = f"The model provider {call.provider} answered with {shown(kind)}, not with a stream of events"
        html = kind == "text/html"
        hint = "" if html else "; set its base URL to an address that streams"
        raise failure("protocol", call.provider, f"{message}{hint}.", status=response.status_code, retryable=html)

    async def _body(self, call: HttpCall, response: httpx.Response, limit: int, deadline: float) -> bytes:
        """Read a body that is no stream, up to a limit and a deadline; what came before a fault is given."""
        held = bytearray()
        try:
            async with asyncio.timeout_at(deadline):
                async for chunk in response.aiter_bytes():
                    held += chunk
                    if len(held) >= limit:
                        break
        except Exception as error:  # noqa: BLE001 - see _open
            fault = fault_of(error, call.provider, call.url)
            if response.status_code in _OK:
                held.clear()
        else:
            return bytes(held[:limit])
        if response.status_code in _OK:
            raise fault
        return bytes(held)

    async def _read(
        self, call: HttpCall, body: AsyncIterator[bytes], decoder: Decoder, deadline: float
    ) -> AsyncGenerator[list[ProviderEvent], None]:
        """Feed the decoder until it is done, the body ends, or the answer is whole and its tail does not come."""
        now = asyncio.get_running_loop().time
        splitter = SseSplitter(self._policy.event_bytes)
        held = 0
        while not decoder.done:
            chunk = await self._chunk(call, body, decoder, deadline)
            raw = self._split(call, splitter, chunk)
            batch: list[ProviderEvent] = []
            fault = _feed(call.provider, decoder, raw, batch)
            if batch:
                yield batch
            if fault is not None:
                raise fault
            if chunk is None:
                return
            if raw or splitter.held > held:
                wait = self._policy.tail_seconds if decoder.finished else self._policy.idle_seconds
                deadline = min(now() + wait, call.deadline)
            held = splitter.held

    async def _chunk(
        self, call: HttpCall, body: AsyncIterator[bytes], decoder: Decoder, deadline: float
    ) -> bytes | None:
        """Read once; None at the end, and when the connection fails after a whole answer."""
        try:
            async with asyncio.timeout_at(deadline):
                return await anext(body, None)
        except Exception as error:  # noqa: BLE001 - see _open
            fault = fault_of(error, call.provider, call.url)
        if decoder.finished:
            return None
        raise fault

    def _split(self, call: HttpCall, splitter: SseSplitter, chunk: bytes | None) -> list[RawEvent]:
        try:
            if chunk is not None:
                return splitter.feed(chunk)
            return [(event, data) for event, data in splitter.end() if is_whole(data)]
        except EventTooLargeError:
            size = self._policy.event_bytes
        message = f"The model provider {call.provider} sent an event of more than {size} bytes."
        raise failure("protocol", call.provider, message)

    async def _drain(self, body: AsyncIterator[bytes]) -> None:
        """Read to the end, so that the connection can be used again; give up soon, which closes it."""
        seen = 0
        try:
            async with asyncio.timeout(self._policy.drain_seconds):
                async for chunk in body:
                    seen += len(chunk)
                    if seen > _DRAINED_BYTES:
                        return
        except Exception:  # noqa: BLE001 - the answer is whole, the connection is given up
            return


def _feed(provider: str, decoder: Decoder, raw: list[RawEvent], batch: list[ProviderEvent]) -> ProviderError | None:
    """Feed events; an error comes back as a value, so that what was read before it is given out first."""
    try:
        for event, data in raw:
            batch += decoder.feed(event, data)
    except ProviderError as error:
        return error
    except Exception as error:  # noqa: BLE001 - an event of a form that nobody foresaw is the server's fault
        message = f"The model provider {provider} sent an event that can't be read ({type(error).__name__})."
        return failure("protocol", provider, message, retryable=True)
    return None


def _bytes_of(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """Read the body as it comes; only a server that compresses although it was asked not to is decoded."""
    body = response.aiter_bytes() if response.headers.get("content-encoding") else response.aiter_raw()
    return cast("AsyncGenerator[bytes, None]", body)  # that is what they are, and so they can be closed


async def _close(response: httpx.Response) -> None:
    try:
        await response.aclose()
    except Exception:  # noqa: BLE001 - a connection that can't be closed in order is gone all the same
        return


def _transport(policy: HttpPolicy, proxy: httpx.Proxy | None = None) -> httpx.AsyncBaseTransport:
    limits = httpx.Limits(
        max_connections=policy.max_connections,
        max_keepalive_connections=policy.max_connections,
        keepalive_expiry=policy.keepalive_seconds,
    )
    context = httpx.create_ssl_context(verify=policy.verify_tls)
    if policy.transport == "httpx":
        return httpx.AsyncHTTPTransport(verify=context, limits=limits, proxy=proxy)

    def session() -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=policy.max_connections,
            keepalive_timeout=policy.keepalive_seconds,
            ssl=context,
        )
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

    return AiohttpTransport(verify=context, limits=limits, client=session, proxy=proxy)
