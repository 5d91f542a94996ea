"""Work behind the end of operations: nobody waits for it, one piece at a time for each session, bounded at the end."""

import asyncio
from collections.abc import Coroutine, Hashable
from typing import Any, Final

import structlog

DRAIN_SECONDS: Final = 5.0


class Background:
    """Runs what is left to do when readers have their answer. A failure is logged, and nobody is told."""

    def __init__(self) -> None:
        """Begin with nothing to do."""
        self._last: dict[Hashable, asyncio.Task[None]] = {}
        self._log = structlog.get_logger(__name__)

    def start(self, key: Hashable, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run the work, behind all that was begun for the same key."""
        task = asyncio.create_task(self._behind(self._last.get(key), work), name=name)
        self._last[key] = task
        task.add_done_callback(lambda ended: self._ended(key, ended))

    async def settled(self) -> None:
        """Wait until there is nothing left to do."""
        while self._last:
            await asyncio.wait(list(self._last.values()))

    async def stop(self, seconds: float = DRAIN_SECONDS) -> None:
        """Let what runs end within the time, and cancel the rest."""
        if not self._last:
            return
        _, late = await asyncio.wait(list(self._last.values()), timeout=seconds)
        if late:
            self._log.warning("background.cut_short", tasks=len(late))
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _behind(self, before: asyncio.Task[None] | None, work: Coroutine[Any, Any, None]) -> None:
        try:
            if before is not None:
                await asyncio.wait([before])
            await work
        finally:
            work.close()

    def _ended(self, key: Hashable, task: asyncio.Task[None]) -> None:
        if self._last.get(key) is task:
            del self._last[key]
        if not task.cancelled() and task.exception() is not None:
            self._log.error("background.failed", task=task.get_name(), exc_info=task.exception())
