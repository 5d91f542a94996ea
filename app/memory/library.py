"""The library of documents: takes them in, and finds passages by words and by meaning.

The two lists are fused by reciprocal rank. Without an embedding model, or in a database without pgvector, passages are
found by their words alone.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import structlog

from app.domain.clock import Clock
from app.domain.documents import Chunk, FoundChunk, Lookup, NewDocument
from app.domain.errors import AlreadyExistsError, AppError, ValidationError
from app.domain.ids import fresh, row_key
from app.domain.turn import Caller
from app.memory.chunking import chunks_of
from app.memory.diversity import diverse
from app.memory.embedding import Embedder
from app.memory.reading import read_sections
from app.store import documents, passages
from app.store.conversations import unknown_conversation
from app.store.database import Connection, Database
from app.store.documents import DocumentRecord, DocumentTakenError
from app.store.passages import Candidate

CANDIDATES: Final = 100
"""How many passages each way of looking gives at most, before the two are fused."""

MMR_SHARE: Final = 5
MMR_MOST: Final = 60
"""Of how many times the passages that are wanted, and of how many at most beyond them, those that say something new
are chosen: each is compared with each."""

RANK_CONSTANT: Final = 60
"""The constant of reciprocal rank fusion: how little the first places differ."""


class Library:
    """The documents of all organizations; what a caller may see of them is part of every question."""

    def __init__(self, database: Database, clock: Clock, embedder: Embedder | None, *, longest: int) -> None:
        """`longest` is how many characters of text a document may have. Without `embedder`, words alone count."""
        self._database = database
        self._clock = clock
        self._embedder = embedder
        self._longest = longest
        self._comparable: bool | None = None
        self._log = structlog.get_logger(__name__)

    async def ingest(self, caller: Caller, new: NewDocument) -> DocumentRecord:
        """Read, cut, embed and keep a document; nothing is kept when any of it fails.

        Raises what `read_sections` raises, ProviderError when the embedding model fails, AlreadyExistsError for an id
        that is taken, and NotFoundError for a conversation that is not the caller's.
        """
        sections = await read_sections(new.content, new.content_type, longest=self._longest)
        chunks = chunks_of(sections)
        vectors: Sequence[Sequence[float]] = ()
        if self._embedder is not None:
            vectors = await self._embedder.vectors([_embedded(chunk, new.title) for chunk in chunks])
        record = self._record(caller, new, chunks, vectors)
        try:
            async with self._database.transaction() as connection:
                await self._check_place(connection, caller, record)
                if new.replace:
                    await documents.remove(connection, caller, record.document_id)
                await documents.add(connection, record, chunks, vectors)
        except DocumentTakenError:
            message = f"There is a document {record.document_id!r} already; send replace: true, or another id."
            raise AlreadyExistsError(message, document_id=record.document_id) from None
        return record

    async def search(self, lookup: Lookup) -> list[FoundChunk]:
        """Give the passages that fit best, the best first. Raises DatabaseError when the database is away."""
        async with self._database.transaction() as connection:
            there = await passages.shelves(connection, lookup)
            if not there.configurations:
                return []
            comparable = await self._can_compare(connection)
        vector = await self._vector(lookup) if comparable and there.embedding_models else None
        async with self._database.transaction() as connection:
            by_words: list[FoundChunk] = []
            by_meaning: list[FoundChunk] = []
            if self._embedder is not None and vector is not None:
                name = self._embedder.name(vector)
                by_meaning = await passages.by_meaning(connection, lookup, vector, name, CANDIDATES)
            if lookup.strategy != "similarity" or not by_meaning:
                words = await passages.words_of(connection, lookup.query, there.configurations)
                if words:
                    by_words = weighed(await passages.by_words(connection, lookup, words, CANDIDATES))
            found = fused(by_words, by_meaning)
            if lookup.strategy != "mmr":
                return found[: lookup.top_k]
            found = found[: max(lookup.top_k, min(MMR_SHARE * lookup.top_k, MMR_MOST))]
            near = await passages.vectors(connection, lookup.caller.organization_id, found) if by_meaning else {}
        # Beside the event loop, since long vectors take their time.
        return await asyncio.to_thread(diverse, found, near, top_k=lookup.top_k, balance=lookup.mmr_lambda)

    def _record(
        self, caller: Caller, new: NewDocument, chunks: Sequence[Chunk], vectors: Sequence[Sequence[float]]
    ) -> DocumentRecord:
        if new.scope == "conversation" and new.conversation_id is None:
            message = "A document of the scope conversation needs a conversation_id."
            raise ValidationError(message)
        named = new.conversation_id
        conversation = row_key(caller.organization_id, named) if named is not None else None
        return DocumentRecord(
            organization_id=caller.organization_id,
            document_id=new.document_id or fresh("doc"),
            scope=new.scope,
            user_id=caller.user_id,
            conversation=conversation,
            conversation_id=named,
            collection=new.collection,
            title=new.title,
            source=new.source,
            content_type=new.content_type,
            language=new.language,
            words=passages.configuration(new.language),
            metadata=dict(new.metadata),
            characters=sum(len(chunk.content) for chunk in chunks),
            chunk_count=len(chunks),
            embedding_model=self._embedder.name(vectors[0]) if self._embedder is not None and vectors else None,
            effective_at=new.effective_at,
            expires_at=new.expires_at,
            created_at=self._clock.now(),
        )

    async def _check_place(self, connection: Connection, caller: Caller, record: DocumentRecord) -> None:
        """Hold the conversation of a document that belongs to one, so that both are erased together."""
        if record.conversation is not None and not await documents.lock_conversation(
            connection, record.conversation, caller
        ):
            raise unknown_conversation(record.conversation_id or "")

    async def _can_compare(self, connection: Connection) -> bool:
        """Tell whether vectors can be compared here; the answer is asked for once."""
        if self._embedder is None:
            return False
        if self._comparable is None:
            self._comparable = await passages.has_vectors(connection)
            if not self._comparable:
                self._log.warning("documents.found_by_words_alone", reason="the database has no extension `vector`")
        return self._comparable

    async def _vector(self, lookup: Lookup) -> Sequence[float] | None:
        if self._embedder is None or lookup.strategy == "words":
            return None
        try:
            return (await self._embedder.vectors([lookup.query]))[0]
        except AppError as error:
            # Words still find most of it, and a turn need not fail for the rest.
            self._log.warning("documents.not_embedded", code=error.code, model=self._embedder.model_id)
            return None


def weighed(found: Sequence[Candidate]) -> list[FoundChunk]:
    """Put chunks in order by the words that they share with the query; a word that few of them have weighs more."""
    having = Counter(word for candidate in found for word in candidate.shared)
    total = len(found)

    def weight(candidate: Candidate) -> float:
        return sum(math.log1p((total - having[word] + 0.5) / (having[word] + 0.5)) for word in candidate.shared)

    ranked = sorted(found, key=weight, reverse=True)
    return [replace(candidate.chunk, score=weight(candidate)) for candidate in ranked]


def fused(*lists: Sequence[FoundChunk]) -> list[FoundChunk]:
    """Fuse lists by reciprocal rank: what stands high in several stands first. The score is 1 for first in all."""
    scores: dict[str, float] = {}
    chunks: dict[str, FoundChunk] = {}
    for ranked in lists:
        for rank, chunk in enumerate(ranked, start=1):
            chunks.setdefault(chunk.chunk_id, chunk)
            scores[chunk.chunk_id] = scores.get(chunk.chunk_id, 0.0) + 1 / (RANK_CONSTANT + rank)
    best = sum(1 for ranked in lists if ranked) / (RANK_CONSTANT + 1)
    order = sorted(scores, key=lambda name: (-scores[name], name))
    return [replace(chunks[name], score=scores[name] / best) for name in order]


def _embedded(chunk: Chunk, title: str | None) -> str:
    return "\n".join(part for part in (title, chunk.heading, chunk.content) if part)
