"""Observers inside the process: they get a stream's chunks as the orchestrator made them, before any guardrail.

No HTTP reader is one of them: those read the ring and the log, which hold what was judged.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

from app.domain.chunks import StreamChunk

MOST_WAITING: Final = 1000


class AsyncStreamClientBridge:
    """One client of a stream, as an asynchronous iterator; it ends with the operation, or when it falls behind."""

    def __init__(self) -> None:
        """Start with no chunk."""
        self._chunks: asyncio.Queue[StreamChunk | None] = asyncio.Queue(MOST_WAITING + 1)
        self.closed = False

    def hand(self, chunk: StreamChunk) -> None:
        """Take a chunk; a client with too many unread ones is closed, so that it holds up nobody."""
        if self._chunks.qsize() >= MOST_WAITING:
            self.close()
        elif not self.closed:
            self._chunks.put_nowait(chunk)

    def close(self) -> None:
        """Say that no chunk will follow."""
        if not self.closed:
            self.closed = True
            self._chunks.put_nowait(None)

    def __aiter__(self) -> "AsyncStreamClientBridge":
        return self

    async def __anext__(self) -> StreamChunk:
        chunk = await self._chunks.get()
        if chunk is None:
            raise StopAsyncIteration
        return chunk


class StreamingManager:
    """The observers of this process, by conversation: a stream's own name is not known before its turn begins."""

    def __init__(self) -> None:
        """Start with none."""
        self._clients: dict[UUID, list[AsyncStreamClientBridge]] = {}

    @asynccontextmanager
    async def observing(self, conversation: UUID) -> AsyncIterator[AsyncStreamClientBridge]:
        """Observe what runs in a conversation, from now to the end of its next operation."""
        bridge = AsyncStreamClientBridge()
        clients = self._clients.setdefault(conversation, [])
        clients.append(bridge)
        try:
            yield bridge
        finally:
            clients.remove(bridge)
            if not clients:
                self._clients.pop(conversation, None)

    def push(self, conversation: UUID, chunks: tuple[StreamChunk, ...]) -> None:
        """Hand chunks to every client."""
        for bridge in self._clients.get(conversation, ()):
            for chunk in chunks:
                bridge.hand(chunk)

    def end(self, conversation: UUID) -> None:
        """Tell every client that the operation is over."""
        for bridge in self._clients.get(conversation, ()):
            bridge.close()
