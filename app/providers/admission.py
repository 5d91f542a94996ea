"""How many requests to one provider are in flight; the limit is below the client's, so no connection is waited for."""

import asyncio
from collections.abc import Mapping
from typing import Final

from app.domain.errors import ProviderError

DEFAULT_LIMIT: Final = 1000
"""What one process can stream at once and lose no turn."""


class NoPlaceError(ProviderError):
    """The service's own limit is reached; that says nothing about the provider."""


class Admission:
    """A limit for each provider, those in `own` or the one for all, and a bounded wait for a place."""

    def __init__(
        self, limit: int = DEFAULT_LIMIT, wait_seconds: float = 10.0, own: Mapping[str, int] | None = None
    ) -> None:
        self._limit = limit
        self._own = dict(own or {})
        self._wait_seconds = wait_seconds
        self._places: dict[str, asyncio.Semaphore] = {}

    async def place(self, provider: str, deadline: float) -> "Place":
        """Give a place, which is held until its block ends. Raises `NoPlaceError` when none comes free in time."""
        limit = self._own.get(provider, self._limit)
        places = self._places.setdefault(provider, asyncio.Semaphore(limit))
        until = min(asyncio.get_running_loop().time() + self._wait_seconds, deadline)
        try:
            async with asyncio.timeout_at(until):
                await places.acquire()
        except TimeoutError:
            message = f"All {limit} places for requests to the model provider {provider} are taken."
            raise NoPlaceError(message, reason="overloaded", provider=provider) from None
        return Place(places)


class Place:
    """One of a provider's places; the end of its block gives it back."""

    __slots__ = ("_places",)

    def __init__(self, places: asyncio.Semaphore) -> None:
        """Take over a place that was acquired."""
        self._places = places

    def __enter__(self) -> None:
        """Hold it."""

    def __exit__(self, *_: object) -> None:
        self._places.release()
