"""A library for tests, on a real database, and an embedding model whose vectors count words of a few topics."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from app.domain.clock import SystemClock
from app.domain.documents import FoundChunk, Lookup, NewDocument
from app.domain.turn import Caller
from app.memory.embedding import Embedder
from app.memory.library import Library
from app.store.database import Database
from tests.stage import ADA

TOPICS = (("dog", "puppy", "hound"), ("car", "vehicle", "automobile"), ("rain", "weather", "storm"))


class Topics:
    """Plays an embedding model; `fails` is raised by the next calls."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.fails: Exception | None = None

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked.append(list(texts))
        if self.fails is not None:
            raise self.fails
        return [[0.01 + sum(word in text.lower() for word in words) for words in TOPICS] for text in texts]


class Shelf:
    """A library, and short ways to use it as Ada."""

    def __init__(self, library: Library, database: Database) -> None:
        self.library = library
        self.database = database

    async def put(self, document_id: str, content: str, caller: Caller = ADA, **more: Any) -> None:
        await self.library.ingest(caller, NewDocument(content, document_id=document_id, **more))

    async def found(self, query: str, caller: Caller = ADA, **more: Any) -> list[FoundChunk]:
        return await self.library.search(Lookup(caller, query, **more))

    async def names(self, query: str, caller: Caller = ADA, **more: Any) -> list[str]:
        return [chunk.document_id for chunk in await self.found(query, caller, **more)]


@asynccontextmanager
async def open_shelf(url: str, topics: Topics | None = None) -> AsyncIterator[Shelf]:
    """Open a library; with `topics` it also looks by meaning."""
    database = Database(url)
    embedder = Embedder("test:topics", topics.embed) if topics is not None else None
    try:
        yield Shelf(Library(database, SystemClock(), embedder, longest=100_000), database)
    finally:
        await database.close()
