"""The streaming manager: hands what an operation says to its clients inside this process (R242 to R244).

The facade is one of them and reads everything back before it judges it. The others are observers: they get the chunks
as the orchestrator made them, before any guardrail. No HTTP reader is a client here: those read the ring and the log,
which hold what was judged.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, Protocol, TypeVar, cast
from uuid import UUID

from app.domain.chunks import StreamChunk
from app.streaming.bell import Bell

MOST_WAITING: Final = 1000
T = TypeVar("T")


class Said(Protocol):
    """What an operation says at a time: a chunk, or its end with the chunks that tell of it."""

    @property
    def chunks(self) -> tuple[StreamChunk, ...]:
        """Give the chunks in their order."""
        ...


class Feed(Protocol):
    """Drives the operation for the client that it works for: what comes next is handed to the client before it ends."""

    async def more(self) -> None:
        """Let the operation say its next; close the client when there is none."""
        ...

    async def aclose(self) -> None:
        """Let the operation say no more."""
        ...


class AsyncStreamClientBridge(Generic[T]):
    """One client of a stream, as an asynchronous iterator; it ends with the operation, or when it falls behind.

    A client with a feed asks for what comes next when it is read, so that nothing piles up and no task is needed; the
    others wait for it.
    """

    def __init__(self, takes: Callable[[Any], Iterable[T]] | None = None, feed: Feed | None = None) -> None:
        """`takes` tells what of the things that are said the client gets: without it, all as they are."""
        self._takes = takes
        self._feed = feed
        self._items: list[T] = []
        self._some = Bell()
        self.closed = False

    def hand(self, said: Said) -> None:
        """Take what is said; a client with too much that is unread is closed, so that it holds up nobody."""
        if self.closed:
            return
        if self._takes is None:
            self._items.append(cast("T", said))
        else:
            self._items.extend(self._takes(said))
        self._some.ring()
        if len(self._items) >= MOST_WAITING:
            self.close()

    def close(self) -> None:
        """Say that nothing will follow what was handed over."""
        self.closed = True
        self._some.ring()

    async def aclose(self) -> None:
        """Read no more."""
        self.close()
        if self._feed is not None:
            await self._feed.aclose()

    def __aiter__(self) -> "AsyncStreamClientBridge[T]":
        return self

    async def __anext__(self) -> T:
        while not self._items:
            if self.closed:
                raise StopAsyncIteration
            if self._feed is not None:
                await self._feed.more()
            else:
                await self._some.heard()
        return self._items.pop(0)


class StreamingManager:
    """The clients of this process: of each operation the facade, and observers by conversation.

    An observer can't name a stream, since it begins to look before there is one.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._facade: dict[object, AsyncStreamClientBridge[Any]] = {}
        self._observers: dict[UUID, list[AsyncStreamClientBridge[StreamChunk]]] = {}

    def begin(self, run: object, bridge: AsyncStreamClientBridge[Any]) -> None:
        """Register the client through which the facade reads a run of an operation back, until it leaves."""
        self._facade[run] = bridge

    def leave(self, run: object) -> None:
        """Close the run's client and forget it."""
        self._facade.pop(run).close()

    @asynccontextmanager
    async def observing(self, conversation: UUID) -> AsyncIterator[AsyncStreamClientBridge[StreamChunk]]:
        """Observe what runs in a conversation, from now to the end of its next operation."""
        bridge = AsyncStreamClientBridge[StreamChunk](lambda said: said.chunks)
        observers = self._observers.setdefault(conversation, [])
        observers.append(bridge)
        try:
            yield bridge
        finally:
            observers.remove(bridge)
            if not observers:
                self._observers.pop(conversation, None)

    def push(self, run: object, conversation: UUID, said: Said) -> None:
        """Hand what a run of an operation says to every client of it."""
        own = self._facade.get(run)
        if own is not None:
            own.hand(said)
        if self._observers:
            for bridge in self._observers.get(conversation, ()):
                bridge.hand(said)

    def end(self, run: object, conversation: UUID) -> None:
        """Tell every client that the operation says no more."""
        own = self._facade.get(run)
        if own is not None:
            own.close()
        for bridge in self._observers.get(conversation, ()):
            bridge.close()
