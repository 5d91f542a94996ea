"""Calls of the HTTP interface. A stream that is cut is read on from where it stopped; a post is safe to repeat."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Final, Self

import httpx

from app.client.events import Event, EventReader

ATTEMPTS: Final = 6
FIRST_PAUSE: Final = 0.2
SILENCE_SECONDS: Final = 60.0


class RefusedError(Exception):
    """The service refused a call; `problem` is its problem document, with `code` and `detail`."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        """Keep status and document."""
        super().__init__(problem.get("detail") or problem.get("title") or f"The service answered {status}.")
        self.status = status
        self.problem = problem

    @property
    def code(self) -> str | None:
        """The stable code of the refusal."""
        return self.problem.get("code")


class Connection:
    """A connection to one Fermata service, for one user. Use it as an async context manager."""

    def __init__(
        self,
        address: str,
        *,
        api_key: str | None = None,
        user_id: str | None = None,
        client: httpx.AsyncClient | None = None,
    ) -> None:
        """`address` is the service's root, such as http://127.0.0.1:8000. A `client` that is given is not closed."""
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._own = client is None
        self._client = client or httpx.AsyncClient(timeout=httpx.Timeout(10, read=SILENCE_SECONDS))
        self._address = address.rstrip("/")
        self._headers = headers
        self._user = {"user_id": user_id} if user_id else {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections that are its own."""
        if self._own:
            await self._client.aclose()

    def run_turn(self, conversation_id: str, turn: Mapping[str, Any]) -> AsyncIterator[Event]:
        """Run a turn and give its events, the `end` last. Raises RefusedError for a refusal."""
        return self._events(f"/v1/conversations/{conversation_id}/turns", {**self._user, **turn})

    def pass_results(
        self, stream_id: str, results: Sequence[Mapping[str, Any]], *, pause_id: str | None = None
    ) -> AsyncIterator[Event]:
        """Pass results for the pause of a stream and give the continuation's events."""
        named = {"pause_id": pause_id} if pause_id else {}
        return self._events(f"/v1/streams/{stream_id}/tool-results", {**self._user, **named, "results": list(results)})

    def resume(self, conversation_id: str, pause_id: str, results: Sequence[Mapping[str, Any]]) -> AsyncIterator[Event]:
        """Take a pause of a conversation onto a new stream and give the continuation's events."""
        body = {**self._user, "pause_id": pause_id, "results": list(results)}
        return self._events(f"/v1/conversations/{conversation_id}/resume", body)

    async def pending_request(self, conversation_id: str) -> dict[str, Any] | None:
        """Give the request that a conversation waits with, or None."""
        address = f"{self._address}/v1/conversations/{conversation_id}/pending-request"
        failures = 0
        while True:
            try:
                response = await self._client.get(address, params=self._user, headers=self._headers)
            except httpx.TransportError as error:
                failures = await _after_failure(error, failures)
            else:
                await _refuse(response)
                return None if response.status_code == httpx.codes.NO_CONTENT else response.json()

    async def _events(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[Event]:
        """Post and read to the `end`; a cut connection is made again with the same key, from the last event on."""
        key = secrets.token_hex(16)
        last: str | None = None
        failures = 0
        while True:
            try:
                async with aclosing(self._post(path, body, key, last)) as events:
                    async for event in events:
                        failures, last = 0, event.id or last
                        yield event
                        if event.type == "end":
                            return
            except httpx.TransportError as error:
                failures = await _after_failure(error, failures)

    async def _post(self, path: str, body: Mapping[str, Any], key: str, last: str | None) -> AsyncGenerator[Event]:
        headers = {**self._headers, "Accept": "text/event-stream", "Idempotency-Key": key}
        if last is not None:
            headers["Last-Event-ID"] = last
        reader = EventReader()
        async with self._client.stream("POST", self._address + path, json=body, headers=headers) as response:
            await _refuse(response)
            async for chunk in response.aiter_raw():
                for event in reader.feed(chunk):
                    yield event
        message = "the stream ended without an end event"
        raise httpx.RemoteProtocolError(message)


async def _after_failure(error: httpx.TransportError, failures: int) -> int:
    """Wait longer from failure to failure in a row, and give their number; raise the last that is allowed."""
    if failures + 1 >= ATTEMPTS:
        raise error
    await asyncio.sleep(FIRST_PAUSE * 2 ** (failures + 1))
    return failures + 1


async def _refuse(response: httpx.Response) -> None:
    if response.is_success:
        return
    await response.aread()
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    raise RefusedError(response.status_code, problem if isinstance(problem, dict) else {})
