"""Wake-ups: hints that a stream has grown. A hint is never load-bearing; whoever waits also looks again by itself.

Within a process a hint arrives at once; between processes a bus carries it.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import structlog

from app.streaming.bell import Bell

GATHER_SECONDS: Final = 0.007
"""Hints for other processes are gathered this long, so that one notification tells of a whole flush."""

Wake = Callable[[Iterable[str] | None], None]
"""Wakes who waits for one of these streams; None wakes all, after hints may have been missed."""


class Bus(Protocol):
    """Carries hints to other processes and from them."""

    async def announce(self, stream_ids: Sequence[str]) -> None:
        """Tell other processes that these streams have grown; a hint that can't be sent is dropped."""
        ...

    async def run(self, wake: Wake, watched: Callable[[], Sequence[str]]) -> None:
        """Hear other processes for ever; `watched` are the streams that somebody here waits for."""
        ...


class Watch:
    """What the readers of one stream share while they wait for it: no queue, one count of changes."""

    def __init__(self) -> None:
        """Start with no change."""
        self.readers = 0
        self.changes = 0
        self._bell = Bell()

    def note(self) -> None:
        """Wake all who wait."""
        self.changes += 1
        self._bell.ring()

    async def since(self, seen: int, seconds: float) -> bool:
        """Wait until there is a change that `seen` does not count; False when none came in time."""
        try:
            async with asyncio.timeout(seconds):
                while self.changes == seen:
                    await self._bell.heard()
        except TimeoutError:
            return False
        return True


class Watching:
    """One who watches a stream for as long as this context is open; it gives what all who do so share."""

    __slots__ = ("_stream_id", "_watches")

    def __init__(self, watches: dict[str, Watch], stream_id: str) -> None:
        """`watches` are those of the process, by stream."""
        self._watches = watches
        self._stream_id = stream_id

    def __enter__(self) -> Watch:
        watch = self._watches.setdefault(self._stream_id, Watch())
        watch.readers += 1
        return watch

    def __exit__(self, *_: object) -> None:
        watch = self._watches[self._stream_id]
        watch.readers -= 1
        if watch.readers == 0:
            del self._watches[self._stream_id]


class Wakeups:
    """The streams that readers of this process wait for, and the way to wake them here and elsewhere."""

    def __init__(self, bus: Bus) -> None:
        """Start with no one waiting; `run` connects to other processes."""
        self._bus = bus
        self._watches: dict[str, Watch] = {}
        self._gathered: set[str] = set()
        self._some = asyncio.Event()
        self._log = structlog.get_logger(__name__)

    @property
    def readers(self) -> int:
        """How many readers of streams this process has."""
        return sum(watch.readers for watch in self._watches.values())

    def watch(self, stream_id: str) -> Watching:
        """Watch a stream. Whoever counts the changes first and looks at the stream then can miss none."""
        return Watching(self._watches, stream_id)

    def wake(self, stream_ids: Iterable[str]) -> None:
        """Tell that streams have grown: at once in this process, and soon in the others."""
        told = list(stream_ids)
        self._wake_here(told)
        self._gathered.update(told)
        if told:
            self._some.set()

    def nudge(self) -> None:
        """Wake all who wait in this process."""
        self._wake_here(None)

    async def run(self) -> None:
        """Carry hints for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._bus.run(self._wake_here, lambda: list(self._watches)), name="wake-ups heard")
            tasks.create_task(self._tell(), name="wake-ups told")

    def _wake_here(self, stream_ids: Iterable[str] | None) -> None:
        for stream_id in list(self._watches) if stream_ids is None else stream_ids:
            watch = self._watches.get(stream_id)
            if watch is not None:
                watch.note()

    async def _tell(self) -> None:
        while True:
            await self._some.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._some.clear()
            told, self._gathered = sorted(self._gathered), set()
            try:
                await self._bus.announce(told)
            except Exception:  # noqa: BLE001 - a hint that is lost is only late
                self._log.warning("wakeups.not_told", streams=len(told), exc_info=True)
