"""A bell: wakes all who wait for it at that moment, and costs nothing while nobody does."""

import asyncio


class Bell:
    """Whoever looks first and waits then, without another wait in between, misses no ring."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        """Start with no one waiting."""
        self._waiting: dict[asyncio.Future[None], None] = {}  # as a set it would be three times as large while empty

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def heard(self) -> None:
        """Wait for the next ring."""
        woken = asyncio.get_running_loop().create_future()
        self._waiting[woken] = None
        try:
            await woken
        finally:
            self._waiting.pop(woken, None)

    def ring(self) -> None:
        """Wake all who wait."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        for woken in waiting:
            if not woken.done():
                woken.set_result(None)
