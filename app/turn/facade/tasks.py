"""The tasks of the runtime: operations belong to them, not to the request that started them."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

_log = structlog.get_logger(__name__)


class Task:
    """A running coroutine, as far as others are concerned."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        """Keep the task."""
        self._task = task

    def cancel(self) -> None:
        """End it soon."""
        self._task.cancel()

    @property
    def done(self) -> bool:
        """Tell whether it has ended."""
        return self._task.done()


class Tasks:
    """Runs coroutines until they end or the runtime stops; a failure that nobody awaits is logged."""

    def __init__(self) -> None:
        """Start with none."""
        self._running: set[asyncio.Task[None]] = set()

    def start(self, coroutine: Coroutine[Any, Any, None], name: str) -> Task:
        """Run a coroutine; gives what can cancel it."""
        task = asyncio.create_task(coroutine, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return Task(task)

    async def wait(self, seconds: float) -> bool:
        """Wait until all have ended; False when some still run after `seconds`."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        return not self._running

    async def cancel(self) -> None:
        """Cancel all and wait until they have gone."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def __len__(self) -> int:
        return len(self._running)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("task.failed", task=task.get_name(), exc_info=task.exception())
