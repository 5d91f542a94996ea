"""What the door asks of the runtime beside turns: documents. As protocols, so that tests can put others there."""

from typing import Protocol

from app.domain.documents import DocumentView, FoundChunk, Lookup, NewDocument
from app.domain.turn import Caller
from app.domain.views import Page


class DocumentDesk(Protocol):
    """Takes documents in and finds them. Every method raises AppError for what it refuses."""

    async def add(self, caller: Caller, new: NewDocument) -> DocumentView:
        """Take a document in."""
        ...

    async def get(self, caller: Caller, document_id: str) -> DocumentView:
        """Give a document."""
        ...

    async def page(
        self, caller: Caller, *, collection: str | None, cursor: str | None, limit: int
    ) -> Page[DocumentView]:
        """List documents, the newest first."""
        ...

    async def chunks(self, caller: Caller, document_id: str, *, cursor: str | None, limit: int) -> Page[FoundChunk]:
        """List a document's chunks in order."""
        ...

    async def search(self, lookup: Lookup, conversation_id: str | None = None) -> list[FoundChunk]:
        """Give the passages that fit best."""
        ...

    async def remove(self, caller: Caller, document_id: str) -> None:
        """Erase a document."""
        ...
