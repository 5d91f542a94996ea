"""The way to an MCP server over HTTP, with the rules that hold for tools that are HTTP calls.

A name is resolved once, judged, and then connected to by the addresses that were judged, until one answers. No proxy
is taken from the environment, since it would resolve the name again.
"""

import asyncio
import socket
from collections.abc import Mapping

import httpx2

from app.tools.addresses import is_private


class JudgedTransport(httpx2.AsyncBaseTransport):
    """Sends requests to the addresses of their hosts; refuses private ones unless `private`."""

    def __init__(self, *, private: bool) -> None:
        """Make the connections behind it."""
        self._private = private
        self._inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Resolve, judge, send. Raises ConnectError for a host that has no address, or none that may be reached."""
        host, port = request.url.host, request.url.port or (443 if request.url.scheme == "https" else 80)
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            message = f"{host} has no address"
            raise httpx2.ConnectError(message) from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if not self._private and any(map(is_private, addresses)):
            message = f"{host} is at a private address, which is not among the private_hosts"
            raise httpx2.ConnectError(message)
        for address in addresses[:-1]:
            try:
                return await self._send(request, host, address)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue  # nothing was sent: `localhost` may be ::1 first, where nobody listens
        return await self._send(request, host, addresses[-1])

    async def _send(self, request: httpx2.Request, host: str, address: str) -> httpx2.Response:
        judged = httpx2.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )
        return await self._inner.handle_async_request(judged)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


def client(headers: Mapping[str, str], *, private: bool, connect_seconds: float, seconds: float) -> httpx2.AsyncClient:
    """Give a client whose requests go that way. A stream may be silent for as long as a call may take."""
    return httpx2.AsyncClient(
        headers=dict(headers),
        transport=JudgedTransport(private=private),
        timeout=httpx2.Timeout(connect_seconds, read=max(seconds, 300.0)),
        trust_env=False,
    )
