"""Pace: a model's text is read no oftener than readers can tell apart.

A model that is quick cuts its text into more pieces than anybody sees, and each that is read by itself goes the whole
way to every reader's socket. So behind a read that brought text, the next one waits a moment: what comes meanwhile is
read with it. Nothing waits before the first text, behind what is no text, behind a model that is slower than that,
behind as much as is let wait, or once the answer is whole.
"""

import asyncio
import math
from collections.abc import Callable, Iterable
from typing import Final

from app.providers.base import ProviderEvent, TextPiece

Ended = Callable[[Callable[[], None]], None]
"""Takes what is to be called when all of a body has come."""

_QUICK: Final = 0.75
"""A model is quick when a piece takes it less than this part of a rest; else most rests would bring but one."""

_MUCH: Final = 1 << 16
"""Behind a read of so many bytes more is there already: the client reads its socket no further until it is taken."""


class Pace:
    """The pace of one answer's reads."""

    __slots__ = ("_ended", "_loop", "_next", "_seconds", "_text_at", "_waiter")

    def __init__(self, seconds: float, on_end: Ended | None) -> None:
        """`seconds` lie between two reads that bring text, at least; nothing rests where nobody can tell the end."""
        self._seconds = seconds if on_end is not None else 0.0
        self._loop = asyncio.get_running_loop()
        self._text_at = -math.inf
        self._next = 0.0
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        if on_end is not None:
            on_end(self._end)

    def note(self, events: Iterable[ProviderEvent], size: int) -> None:
        """Learn what a read of so many bytes brought."""
        self._next = 0.0
        if pieces := sum(type(event) is TextPiece for event in events):
            now = self._loop.time()
            if size < _MUCH and now - self._text_at < pieces * self._seconds * _QUICK:
                self._next = now + self._seconds
            self._text_at = now

    @property
    def rests(self) -> bool:
        """Tell whether the next read is to wait; `rest` does."""
        return self._next > 0.0 and not self._ended and self._loop.time() < self._next

    async def rest(self) -> None:
        """Wait until it is time for the next read, or all of the body is there."""
        waiter = self._waiter = self._loop.create_future()
        timer = self._loop.call_at(self._next, self._wake)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _end(self) -> None:
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
