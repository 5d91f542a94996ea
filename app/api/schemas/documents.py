"""Bodies of documents: what is put in, what is kept, what a search asks and finds."""

import base64
import binascii
from datetime import UTC, datetime
from typing import Annotated, Self

from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from app.api.schemas.base import ConversationId, JsonObject, Name, NotBlank, Output, OwnedInput
from app.domain.documents import MMR_LAMBDA, ContentType, DocumentScope, NewDocument, SearchStrategy

DocumentId = Annotated[str, Field(pattern="^[A-Za-z0-9._:-]{1,128}$", examples=["handbook-2026"])]
Collection = Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,64}$", examples=["handbook"])]
EARLIEST, LATEST = datetime(1900, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)


def _storable(moment: datetime) -> datetime:
    if not EARLIEST <= moment <= LATEST:
        message = f"must be a moment between the years {EARLIEST.year} and {LATEST.year}"
        raise ValueError(message)
    return moment


Moment = Annotated[AwareDatetime, Field(strict=False, examples=["2026-11-30T12:00:00Z"]), AfterValidator(_storable)]
LONGEST_QUERY = 4000
MOST_PASSAGES = 50


class DocumentBody(OwnedInput):
    """A document to take in: as text in `content`, or as bytes in `content_base64`, which a PDF must be."""

    document_id: DocumentId | None = Field(default=None, description="Left out: the service names it.")
    scope: DocumentScope = Field(
        default="organization",
        description="Who may find it: all users of the organization, the caller, or the caller in one conversation.",
    )
    conversation_id: ConversationId | None = Field(default=None, description="With the scope `conversation`: which.")
    collection: Collection = Field(default="default", description="The shelf it stands on: searches may name some.")
    title: Name | None = Field(default=None, description="What readers know it by.")
    source: Annotated[str, Field(max_length=2000)] | None = Field(
        default=None, description="Where it is from, such as an address."
    )
    language: Annotated[str, Field(pattern="^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$")] | None = Field(
        default=None, description="Its language, such as `de`: words are then found in all their forms."
    )
    metadata: JsonObject = Field(default_factory=dict, description="Whatever the host wants back with each passage.")
    effective_at: Moment | None = Field(default=None, description="From when on it is found; left out: at once.")
    expires_at: Moment | None = Field(default=None, description="Until when it is found; left out: for ever.")
    content_type: ContentType = Field(default="text/plain", description="What the content is.")
    content: NotBlank | None = Field(default=None, description="The document as text.")
    content_base64: NotBlank | None = Field(default=None, description="The document as bytes, in base64.")
    replace: bool = Field(default=False, description="Take the place of the document that has this id.")

    @model_validator(mode="after")
    def _one_content(self) -> Self:
        if (self.content is None) == (self.content_base64 is None):
            message = "send either content or content_base64"
            raise ValueError(message)
        if self.content_type == "application/pdf" and self.content is not None:
            message = "a PDF is bytes: send it as content_base64"
            raise ValueError(message)
        if (self.scope == "conversation") != (self.conversation_id is not None):
            message = "a conversation_id goes with the scope conversation, and with no other"
            raise ValueError(message)
        if self.effective_at and self.expires_at and self.effective_at >= self.expires_at:
            message = "expires_at must be later than effective_at"
            raise ValueError(message)
        self._bytes()
        return self

    def to_domain(self) -> NewDocument:
        """Give the document."""
        content = self.content if self.content is not None else self._bytes()
        names = (
            "content_type", "document_id", "scope", "conversation_id", "collection", "title", "source", "language",
            "metadata", "effective_at", "expires_at", "replace",
        )  # fmt: skip
        return NewDocument(content=content, **{name: getattr(self, name) for name in names})

    def _bytes(self) -> bytes:
        try:
            return base64.b64decode(self.content_base64 or "", validate=True)
        except (binascii.Error, ValueError):
            message = "content_base64 is not base64"
            raise ValueError(message) from None


class DocumentOut(Output):
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
    metadata: JsonObject
    characters: int
    chunk_count: int
    embedding_model: str | None
    effective_at: str | None
    expires_at: str | None
    created_at: str


class PassageOut(Output):
    """A piece of a document; `id` cites it, and is the same in the sources of a turn."""

    id: str = Field(validation_alias="chunk_id")
    document_id: str
    number: int
    collection: str
    heading: str | None
    title: str | None
    source: str | None
    metadata: JsonObject
    content: str


class FoundPassageOut(PassageOut):
    """A piece that a search has found; `relevance_score` is 1 for what is first in every way."""

    relevance_score: float = Field(validation_alias="score")


class SearchBody(OwnedInput):
    """A search."""

    query: Annotated[NotBlank, Field(max_length=LONGEST_QUERY, description="What is looked for, in words.")]
    collections: list[Collection] | None = Field(default=None, description="Left out: all; an empty list: none.")
    conversation_id: ConversationId | None = Field(
        default=None, description="Look in the documents of this conversation as well."
    )
    top_k: int = Field(default=5, ge=1, le=MOST_PASSAGES, description="How many passages at most.")
    strategy: SearchStrategy = Field(
        default="hybrid",
        description="Find by words, by likeness of meaning, or by both; `mmr` by both, without what is only repeated.",
    )
    mmr_lambda: float = Field(
        default=MMR_LAMBDA, ge=0, le=1, description="With `mmr`: 1 goes by the fit alone, 0 by what is new alone."
    )
    metadata: JsonObject = Field(default_factory=dict, description="What a document's metadata must hold to be found.")


class SearchOut(Output):
    """What a search has found, the best first."""

    items: list[FoundPassageOut]
