"""A network that fails: responses are cut after some bytes, as when a phone changes its mast."""

from collections.abc import AsyncIterator, Iterator

import httpx


class Cutting(httpx.AsyncBaseTransport):
    """Passes requests on; each response is cut after the next of `after` bytes, and is whole once those are used up.

    With 0 bytes the answer is lost altogether: the server has got the request, and the client learns nothing. With
    `silent`, a cut looks like a response's own end, as it does behind a proxy that speaks HTTP/1.0.
    """

    def __init__(self, *after: int, silent: bool = False) -> None:
        self._inner = httpx.AsyncHTTPTransport()
        self._after: Iterator[int] = iter(after)
        self._silent = silent
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        response = await self._inner.handle_async_request(request)
        after = next(self._after, None)
        if after is None:
            return response
        if after == 0:
            await response.aread()
            await response.aclose()
            message = "the answer was lost"
            raise httpx.ReadError(message)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        cut = _Cut(response.stream, after, silent=self._silent)
        return httpx.Response(response.status_code, headers=response.headers, stream=cut)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Cut(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, after: int, *, silent: bool) -> None:
        self._stream = stream
        self._silent = silent
        self._left = after

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield chunk[: self._left]
            self._left -= len(chunk)
            if self._left <= 0 and self._silent:
                return
            if self._left <= 0:
                message = "the connection was cut"
                raise httpx.ReadError(message)

    async def aclose(self) -> None:
        await self._stream.aclose()
