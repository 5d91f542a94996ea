"""The HTTP client of the model providers: httpx's, with aiohttp underneath or httpx's own transport.

Nothing but `ModelHttp` imports it, and that in a thread: its packages and the system's certificates take a quarter of a
second to read.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import lru_cache, partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final, cast

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport
from httpx_aiohttp.transport import AiohttpResponseStream, map_aiohttp_exceptions

from app.providers.calls import ON_END, HttpPolicy

_HEADERS: Final = {"accept-encoding": "identity", "user-agent": "fermata"}
_READ_BYTES: Final = 1 << 18
"""A read takes as much as the client lets wait without reading the socket any slower."""

_ADDRESSES: Final = 64
"""How many addresses are kept taken apart: a dialect may have one for each model."""


class ModelClient:
    """Sends requests to providers; nothing connects before the first one, and it is used in one event loop."""

    def __init__(self, policy: HttpPolicy) -> None:
        """Make the client, which takes its time."""
        transport = _transport(policy)
        self._client = httpx.AsyncClient(
            transport=transport,
            mounts={
                pattern: None if proxy is None else _transport(policy, httpx.Proxy(proxy))
                for pattern, proxy in policy.proxies.items()
            },
            # Cookies that one caller's answer set must not go out with another's request.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            trust_env=False,
            follow_redirects=False,
        )
        # What the client does around its transport is for proxies, cookies and redirects, and a third of a call's cost.
        self._send: Callable[[httpx.Request], Awaitable[httpx.Response]] = (
            partial(self._client.send, stream=True) if policy.proxies else transport.handle_async_request
        )
        self._completes = isinstance(transport, AiohttpTransport) and not policy.proxies
        timeouts = httpx.Timeout(None, connect=policy.connect_seconds, pool=policy.connect_seconds)
        self._extensions = {"timeout": timeouts.as_dict()}
        self._address = lru_cache(_ADDRESSES)(httpx.URL)

    async def send(self, url: str, headers: Mapping[str, str], content: bytes | None) -> httpx.Response:
        """Post the content, or get the address when there is none; the answer's body is not read yet."""
        method = "GET" if content is None else "POST"
        sent = {**_HEADERS, **headers}
        # Made of a stream, a request has no headers but those that it is given. Looking for those that are missing is
        # most of what making one costs, and what sends it adds them anyway.
        told = {"stream": httpx.ByteStream(content or b"")} if self._completes else {"content": content}
        request = httpx.Request(method, self._address(url), headers=sent, extensions=self._extensions, **told)
        request.read()
        return await self._send(request)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()


class _Transport(AiohttpTransport):
    """Gives what has come of a body in one read, and tells when all of it has."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        answer = cast("AiohttpResponseStream", response.stream)._aiohttp_response  # noqa: SLF001 - the only way to it
        response.stream = _Body(answer)
        response.extensions[ON_END] = answer.content.on_eof
        _lighten(answer)
        return response


class _Queue(list[Any]):
    """What has come of an answer, in its order; the client's own takes 0.6 KiB while it is empty."""

    __slots__ = ()

    def popleft(self) -> Any:
        return self.pop(0)


def _lighten(answer: aiohttp.ClientResponse) -> None:
    """Let an answer hold little while its model goes on: its head has been read, and most of the time nothing waits."""
    content = answer.content
    content._buffer = _Queue(content._buffer)  # type: ignore[assignment]  # noqa: SLF001 - nothing public says so
    content._http_chunk_splits = _Queue(content._http_chunk_splits or ())  # type: ignore[assignment]  # noqa: SLF001
    if (connection := answer.connection) is not None and (protocol := connection.protocol) is not None:
        protocol._buffer = _Queue(protocol._buffer)  # type: ignore[assignment]  # noqa: SLF001
    answer._headers = answer._raw_headers = None  # type: ignore[assignment]  # noqa: SLF001 - as before they came
    answer._cache.clear()  # noqa: SLF001


class _Body(AiohttpResponseStream):
    """A body whose connection breaks is given as far as it has come: its reader may have let some of it wait."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        content = self._aiohttp_response.content
        with map_aiohttp_exceptions():
            try:
                while chunk := await content.read(_READ_BYTES):
                    yield chunk
            except Exception:
                # The client raises it in the place of what it holds, and has no other way to that.
                if left := content._read_nowait(-1):  # noqa: SLF001
                    yield left
                raise


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

    return _Transport(verify=context, limits=limits, client=session, proxy=proxy)
