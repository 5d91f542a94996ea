"""Wake-ups: hints that a stream has grown. A hint is never load-bearing; whoever waits also looks again by itself."""

import asyncio
from collections.abc import Iterable


class Wakeups:
    """Readers of this process that wait for a stream, and the way to wake them."""

    def __init__(self) -> None:
        """Start with no one waiting."""
        self._waiting: dict[str, asyncio.Event] = {}

    def wake(self, stream_ids: Iterable[str]) -> None:
        """Wake all who wait for one of these streams."""
        for stream_id in stream_ids:
            event = self._waiting.pop(stream_id, None)
            if event is not None:
                event.set()

    async def wait(self, stream_id: str, timeout: float) -> bool:  # noqa: ASYNC109 - a bound is the point here
        """Wait for a wake-up; False when none came within `timeout` seconds."""
        event = self._waiting.setdefault(stream_id, asyncio.Event())
        try:
            async with asyncio.timeout(timeout):
                await event.wait()
        except TimeoutError:
            return False
        return True
