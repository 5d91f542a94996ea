"""Outlets: how a frame gets to a reader without waking it.

A reader that has all there is waits for its ring. A frame that is said then goes out where it is said, as far as the
socket takes it, instead of through a future, a turn of the event loop and a task that looks what there is: that is half
of what a token costs a reader.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator
from typing import Any, Final

Sending = Callable[[bytes], Awaitable[None]]


class CutError(Exception):
    """The response can't be finished: the connection must be reset, so that nobody takes it for complete."""


class Outlet:
    """Sends one reader's pieces. Closed until somebody can send; a reader with a closed one is woken by every frame."""

    __slots__ = ("_failure", "_rest", "_send")

    def __init__(self) -> None:
        self._send: Sending | None = None
        self._rest: _Begun | None = None
        self._failure: Exception | None = None

    def open(self, send: Sending) -> None:
        """Say how a piece is sent."""
        self._send = send

    def shut(self) -> None:
        """Let go of who sends, once the reader is gone: the two would hold each other until the collector comes."""
        self._send = None

    @property
    def is_open(self) -> bool:
        """Whether a piece may be written: somebody can send, and nothing that was begun is unfinished."""
        return self._send is not None and not self.waits

    @property
    def waits(self) -> bool:
        """Whether something was begun that is to be finished."""
        return self._rest is not None or self._failure is not None

    def write(self, piece: bytes) -> bool:
        """Send a piece, outside the reader's task. False when it has only begun: then `finish` is to be awaited.

        A failure is raised by `finish`, so that it meets the reader and not whoever wrote.
        """
        if self._send is None:
            raise RuntimeError
        steps = self._send(piece).__await__()
        try:
            first = next(steps)
        except StopIteration:
            return True
        except Exception as error:  # noqa: BLE001 - `finish` raises it
            self._failure = error
        else:
            self._rest = _Begun(steps, first)
        return False

    async def finish(self) -> None:
        """Wait until what a write has begun is sent, in the reader's own task; raises what sending raises."""
        rest, failure = self._rest, self._failure
        self._rest = self._failure = None
        if failure is not None:
            raise failure
        if rest is not None:
            await rest


class Reader(AsyncIterator[bytes]):
    """What one reader gets, piece by piece; an empty piece says that its outlet has begun something to be finished."""

    __slots__ = ("_pieces", "outlet")

    def __init__(self, pieces: AsyncGenerator[bytes, None], outlet: Outlet) -> None:
        self._pieces: Final = pieces
        self.outlet: Final = outlet

    def __anext__(self) -> Coroutine[Any, Any, bytes]:
        return self._pieces.__anext__()

    async def aclose(self) -> None:
        """Read no more."""
        await self._pieces.aclose()


class _Begun:
    """The rest of something awaitable that was begun elsewhere and had to wait for `first`."""

    __slots__ = ("_first", "_steps")

    def __init__(self, steps: Generator[Any, Any, None], first: Any) -> None:
        self._steps = steps
        self._first = first

    def __await__(self) -> Generator[Any, Any, None]:
        try:
            yield self._first
        except BaseException:
            self._steps.close()
            raise
        yield from self._steps
