"""The one module that owns HTTP to model providers: deadlines, content types, draining, closing, errors.

The client is httpx's with aiohttp underneath, or httpx's own transport where a setting or a test asks for it. Nothing
that either of them raises leaves this module: `ProviderError` does, without the request that it was about.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, cast

from app.domain.errors import ProviderError
from app.domain.generators import aclosing
from app.domain.patience import Patience
from app.providers.base import ProviderEvent
from app.providers.calls import ON_END, HttpCall, HttpPolicy
from app.providers.dialect import Decoder
from app.providers.errors import failure, from_response, in_band, shown
from app.providers.pace import Ended, Pace
from app.providers.sse import EventTooLargeError, RawEvent, SseSplitter
from app.providers.wire import dumps, is_whole, loads

if TYPE_CHECKING:
    import httpx

    from app.providers.transport import ModelClient

_ACCEPTED_TYPES: Final = frozenset({"", "text/event-stream", "text/plain", "application/octet-stream"})
_DRAINED_BYTES: Final = 1 << 20
_OK: Final = range(200, 300)


class ModelHttp:
    """One HTTP client for all providers of a process. Use it inside the event loop that made it."""

    def __init__(self, policy: HttpPolicy | None = None) -> None:
        self._policy = policy or HttpPolicy()
        self._making: asyncio.Task[ModelClient] | None = None

    @property
    def gathers(self) -> bool:
        """Whether text that comes by one read is told as one piece."""
        return self._policy.gather_seconds > 0

    async def open(self) -> "ModelClient":
        """Give the client. The first to ask has it made, in a thread; whoever calls before it is there waits for it."""
        if self._making is None:
            self._making = asyncio.create_task(asyncio.to_thread(_make, self._policy), name="model client")
        return self._making.result() if self._making.done() else await asyncio.shield(self._making)

    async def stream(self, call: HttpCall, decoder: Decoder) -> AsyncGenerator[list[ProviderEvent], None]:
        """Send the call and give what the decoder makes of the answer, one list for each read that gave something.

        Raises `ProviderError` alone. Closing the generator, or cancelling its reader, closes the socket, unless the
        answer was read to its end.
        """
        now = asyncio.get_running_loop().time
        deadline = min(now() + self._policy.first_event_seconds, call.deadline)
        stream, on_end = await self._events(call, deadline)
        splitter, held = SseSplitter(self._policy.event_bytes), 0
        pace = Pace(self._policy.gather_seconds, on_end)
        try:
            async with aclosing(_bytes_of(stream)) as body:
                with closing(Patience()) as patience:
                    while not decoder.done:
                        if pace.rests and not decoder.finished:
                            await pace.rest()
                        chunk = await self._chunk(call, body, decoder, patience.until(deadline))
                        raw, fault = self._split(call, splitter, chunk)
                        batch: list[ProviderEvent] = []
                        fault = _feed(call.provider, decoder, raw, batch) or fault
                        if raw:
                            pace.note(batch, len(chunk or b""))
                        if batch:
                            yield batch
                        if fault is not None:
                            raise fault
                        if chunk is None:
                            break
                        if raw or splitter.held > held:
                            wait = self._policy.tail_seconds if decoder.finished else self._policy.idle_seconds
                            deadline = min(now() + wait, call.deadline)
                        held = splitter.held
                        del chunk, raw, batch  # they would be held while the next is waited for
                if decoder.done:
                    await self._drain(body)
        finally:
            await _close(stream)
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
        if self._making is not None:
            await asyncio.wait((self._making,))
            if self._making.exception() is None:
                await self._making.result().aclose()

    async def _events(self, call: HttpCall, deadline: float) -> "tuple[httpx.AsyncByteStream, Ended | None]":
        """Send the call and give the body of its answer, which is a stream of events, and what tells its end.

        The rest of the answer is not held while that comes: it has the request, with all that the model was told.
        """
        response = await self._open(call, {"accept": "text/event-stream"}, deadline)
        try:
            await self._expect_events(call, response)
        except BaseException:
            await _close(response)
            raise
        # Only a server that compresses although it was asked not to is decoded; else the stream itself is read, since
        # `aiter_raw` would do no more than count its bytes.
        packed = "content-encoding" in response.headers
        body = cast("httpx.AsyncByteStream", _Decoded(response) if packed else response.stream)
        return body, response.extensions.get(ON_END)

    async def _open(self, call: HttpCall, headers: Mapping[str, str], deadline: float) -> "httpx.Response":
        fault: ProviderError
        sent = {**headers, **call.headers}
        try:
            async with asyncio.timeout_at(deadline):
                client = await self.open()
                if call.body is None:
                    return await client.send(call.url, sent, None)
                return await client.send(call.url, {"content-type": "application/json", **sent}, dumps(call.body()))
        except Exception as error:  # noqa: BLE001 - whatever the client raises becomes a ProviderError here
            fault = _fault(error, call, opening=True)
        # Raised out here, so that the error does not carry the client's own, which holds the request and its key.
        raise fault

    async def _expect_events(self, call: HttpCall, response: "httpx.Response") -> None:
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

    async def _body(self, call: HttpCall, response: "httpx.Response", limit: int, deadline: float) -> bytes:
        """Read a body that is no stream, up to a limit and a deadline; what came before a fault is given."""
        held = bytearray()
        try:
            async with asyncio.timeout_at(deadline):
                async for chunk in response.aiter_bytes():
                    held += chunk
                    if len(held) >= limit:
                        break
        except Exception as error:  # noqa: BLE001 - see _open
            fault = _fault(error, call)
            if response.status_code in _OK:
                held.clear()
        else:
            return bytes(held[:limit])
        if response.status_code in _OK:
            raise fault
        return bytes(held)

    async def _chunk(
        self, call: HttpCall, body: AsyncIterator[bytes], decoder: Decoder, patience: Patience
    ) -> bytes | None:
        """Read once; None at the end, and when the connection fails after a whole answer."""
        try:
            with patience:
                return await body.__anext__()
        except StopAsyncIteration:
            return None
        except Exception as error:  # noqa: BLE001 - see _open
            fault = _fault(error, call)
        if decoder.finished:
            return None
        raise fault

    def _split(
        self, call: HttpCall, splitter: SseSplitter, chunk: bytes | None
    ) -> tuple[list[RawEvent], ProviderError | None]:
        """Give the events of a read; an error is a value here, too, so that what came before it is given out first."""
        try:
            if chunk is not None:
                return splitter.feed(chunk), None
            return [(event, data) for event, data in splitter.end() if is_whole(data)], None
        except EventTooLargeError as error:
            before = error.before
        message = f"The model provider {call.provider} sent an event of more than {self._policy.event_bytes} bytes."
        return before, failure("protocol", call.provider, message)

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


def _make(policy: HttpPolicy) -> "ModelClient":
    from app.providers.transport import ModelClient  # noqa: PLC0415 - a start does not wait for its packages

    return ModelClient(policy)


def _fault(error: Exception, call: HttpCall, *, opening: bool = False) -> ProviderError:
    from app.providers.faults import fault_of  # noqa: PLC0415 - it knows the client's errors, so it comes with it

    return fault_of(error, call.provider, call.url, opening=opening)


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


class _Decoded:
    """The body of a compressed answer, as it was before."""

    def __init__(self, response: "httpx.Response") -> None:
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._response.aiter_bytes()

    async def aclose(self) -> None:
        await self._response.aclose()


def _bytes_of(stream: "httpx.AsyncByteStream") -> AsyncGenerator[bytes, None]:
    return cast("AsyncGenerator[bytes, None]", aiter(stream))  # that is what they are, and so they can be closed


async def _close(opened: "httpx.Response | httpx.AsyncByteStream") -> None:
    try:
        await opened.aclose()
    except Exception:  # noqa: BLE001 - a connection that can't be closed in order is gone all the same
        return
