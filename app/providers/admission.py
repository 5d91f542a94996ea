"""How many requests to one provider are in flight; the limit is below the client's, so no connection is waited for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from app.domain.errors import ProviderError

DEFAULT_LIMIT: Final = 200


class NoPlaceError(ProviderError):
    """The service's own limit is reached; that says nothing about the provider."""


class Admission:
    """One limit for each provider, and a bounded wait for a place."""

    def __init__(self, limit: int = DEFAULT_LIMIT, wait_seconds: float = 10.0) -> None:
        self._limit = limit
        self._wait_seconds = wait_seconds
        self._places: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def place(self, provider: str, deadline: float) -> AsyncIterator[None]:
        """Hold a place. Raises `NoPlaceError` when none comes free in time."""
        places = self._places.setdefault(provider, asyncio.Semaphore(self._limit))
        until = min(asyncio.get_running_loop().time() + self._wait_seconds, deadline)
        try:
            async with asyncio.timeout_at(until):
                await places.acquire()
        except TimeoutError:
            message = f"All {self._limit} places for requests to the model provider {provider} are taken."
            raise NoPlaceError(message, reason="overloaded", provider=provider) from None
        try:
            yield
        finally:
            places.release()
