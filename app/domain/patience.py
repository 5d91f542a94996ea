"""Patience: a bound on each of many short waits, for hardly more than the waits cost.

`asyncio.timeout` arms a timer for each wait and disarms it, which costs more than reading a token does. Here one timer
serves the waits of a stream: it stands until its time has come, and looks then whether the wait of that moment is late.
"""

import asyncio
import math
from types import TracebackType
from typing import Self


class Patience:
    """Bounds the waits of one reader, one at a time; see `until`. Close it, or its timer outlives it."""

    __slots__ = ("_cancels", "_due", "_late", "_loop", "_rings_at", "_task", "_timer")

    def __init__(self) -> None:
        """Make it inside the event loop that is to use it."""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf
        self._due = math.inf
        self._task: asyncio.Task[object] | None = None
        self._cancels = 0
        self._late = False

    def until(self, due: float) -> Self:
        """Give the context of a wait that ends with TimeoutError at that time of the event loop."""
        self._due = due
        return self

    def close(self) -> None:
        """Disarm the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __enter__(self) -> None:
        task = self._task = asyncio.current_task(self._loop)
        if task is not None:
            self._cancels = task.cancelling()
        if self._timer is None or self._due < self._rings_at:
            self._arm()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        task, self._task = self._task, None
        if self._late:
            self._late = False
            if task is not None and task.uncancel() <= self._cancels and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def _arm(self) -> None:
        self.close()
        if self._due < math.inf:
            self._rings_at = self._due
            self._timer = self._loop.call_at(self._due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._due:
            self._arm()
        else:
            self._late = True
            self._task.cancel()
