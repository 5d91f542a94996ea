"""The HTTP client of the model providers: httpx's, with aiohttp underneath or httpx's own transport.

Nothing but `ModelHttp` imports it, and that in a thread: its packages and the system's certificates take a quarter of a
second to read.
"""

from http.cookiejar import CookieJar, DefaultCookiePolicy

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from app.providers.calls import HttpPolicy


def client_of(policy: HttpPolicy) -> httpx.AsyncClient:
    """Make the client; nothing connects before its first request, and it is used in one event loop."""
    return httpx.AsyncClient(
        transport=_transport(policy),
        mounts={
            pattern: None if proxy is None else _transport(policy, httpx.Proxy(proxy))
            for pattern, proxy in policy.proxies.items()
        },
        # Cookies that one caller's answer set must not go out with another's request.
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        trust_env=False,
        timeout=httpx.Timeout(None, connect=policy.connect_seconds, pool=policy.connect_seconds),
        headers={"accept-encoding": "identity", "user-agent": "fermata"},
        follow_redirects=False,
    )


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
