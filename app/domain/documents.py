"""Documents that can be searched: what is put in, what is kept, and what a search finds."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

from app.domain.frozen import dataclass
from app.domain.turn import Caller

DocumentScope = Literal["organization", "user", "conversation"]
ContentType = Literal["text/plain", "text/markdown", "text/html", "application/pdf"]
SearchStrategy = Literal["hybrid", "similarity", "words", "mmr"]
DEFAULT_COLLECTION: Final = "default"
MMR_LAMBDA: Final = 0.7


@dataclass(frozen=True, slots=True)
class NewDocument:
    """A document to take in. `content` is text, or the bytes of a PDF.

    Who may find it depends on `scope`: all users of the organization, the caller alone, or the caller in one
    conversation. It is erased with the conversation that `conversation_id` names. `language` (such as `de`) makes words
    be found in all their forms. It is found from `effective_at` on and until `expires_at`, where these are told.
    """

    content: str | bytes
    content_type: ContentType = "text/plain"
    document_id: str | None = None
    scope: DocumentScope = "organization"
    conversation_id: str | None = None
    collection: str = DEFAULT_COLLECTION
    title: str | None = None
    source: str | None = None
    language: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    effective_at: datetime | None = None
    expires_at: datetime | None = None
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document, in the document's own words; `heading` names the part that it is from."""

    content: str
    heading: str | None = None


@dataclass(frozen=True, slots=True)
class DocumentView:
    """A document as it is kept."""

    document_id: str
    scope: DocumentScope
    user_id: str
    conversation_id: str | None
    collection: str
    title: str | None
    source: str | None
    content_type: str
    language: str | None
    metadata: Mapping[str, Any]
    characters: int
    chunk_count: int
    embedding_model: str | None
    effective_at: str | None
    expires_at: str | None
    created_at: str


@dataclass(frozen=True, slots=True)
class Lookup:
    """A search: for whom, where, and how much of it. `collections` None looks in all, an empty list in none.

    `strategy` says by what is looked: words and meaning together, meaning alone (where something embeds), or words.
    With `mmr` it is words and meaning, and what only repeats the passages before is left out: `mmr_lambda` 1 goes by
    the fit alone, 0 by how little it is like the others. All that `metadata` holds must be in a document's own.
    """

    caller: Caller
    query: str
    conversation: UUID | None = None
    collections: Sequence[str] | None = None
    top_k: int = 5
    strategy: SearchStrategy = "hybrid"
    mmr_lambda: float = MMR_LAMBDA
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundChunk:
    """A chunk that a search has found. `chunk_id` cites it: the document's id, `#`, and the chunk's number from 1."""

    document_id: str
    number: int
    collection: str
    content: str
    heading: str | None
    title: str | None
    source: str | None
    metadata: Mapping[str, Any]
    score: float = 0.0

    @property
    def chunk_id(self) -> str:
        """The name that cites the chunk."""
        return f"{self.document_id}#{self.number}"

    @property
    def told(self) -> str:
        """The passage as a model reads it, behind the id that cites it."""
        name = " — ".join(part for part in (self.title, self.heading) if part)
        return f"[{self.chunk_id}] {name}\n{self.content}" if name else f"[{self.chunk_id}]\n{self.content}"

    def to_json(self) -> dict[str, Any]:
        """Give the form in which streams, answers and snapshots name a source."""
        return {
            "id": self.chunk_id,
            "original_document_id": self.document_id,
            "data_source_id": self.collection,
            "content": self.content,
            "heading": self.heading,
            "title": self.title,
            "source": self.source,
            "metadata": dict(self.metadata),
            "relevance_score": round(self.score, 6),
        }
