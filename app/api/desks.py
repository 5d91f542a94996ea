"""What the door asks of the runtime beside turns, as protocols: documents, memories and users."""

from typing import Protocol

from app.domain.documents import DocumentView, FoundChunk, Lookup, NewDocument
from app.domain.turn import Caller
from app.domain.views import MemoryView, Page


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


class MemoryDesk(Protocol):
    """Shows users what is remembered of them, and forgets it."""

    async def page(self, caller: Caller, *, cursor: str | None, limit: int) -> Page[MemoryView]:
        """List memories, the newest first."""
        ...

    async def remove(self, caller: Caller, memory_id: str) -> None:
        """Forget one."""
        ...

    async def remove_all(self, caller: Caller) -> int:
        """Forget all of the caller's."""
        ...


class UserDesk(Protocol):
    """Erases what is kept of users."""

    async def erase(self, caller: Caller) -> int:
        """Erase all of the caller's; tells how many conversations there were."""
        ...
