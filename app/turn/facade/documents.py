"""What clients do with documents: take in, list, read, search, erase. Another's look like ones that are not there."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from app.domain.documents import DocumentView, FoundChunk, Lookup, NewDocument
from app.domain.errors import MalformedError, NotFoundError
from app.domain.ids import row_key
from app.domain.turn import Caller
from app.domain.views import Page
from app.memory.library import Library
from app.store import documents
from app.store.database import Database
from app.store.documents import DocumentRecord
from app.store.pauses import iso
from app.turn.facade.queries import LONGEST_POSITION, read_cursor, write_cursor


class Documents:
    """The library as a caller may use it."""

    def __init__(self, database: Database, library: Library, admit: Callable[[Caller], Caller]) -> None:
        """Keep the library, and what each caller passes first."""
        self._database = database
        self._library = library
        self._admit = admit

    async def add(self, caller: Caller, new: NewDocument) -> DocumentView:
        """Take a document in; see `Library.ingest`."""
        return _view(await self._library.ingest(self._admit(caller), new))

    async def get(self, caller: Caller, document_id: str) -> DocumentView:
        """Give a document, or raise NotFoundError."""
        async with self._database.transaction() as connection:
            record = await documents.find(connection, self._admit(caller), document_id)
        if record is None:
            raise _unknown(document_id)
        return _view(record)

    async def page(
        self, caller: Caller, *, collection: str | None, cursor: str | None, limit: int
    ) -> Page[DocumentView]:
        """List the documents that the caller may see, the newest first."""
        before = None
        if cursor is not None:
            moment, document_id = read_cursor(cursor)
            before = (datetime.fromisoformat(moment), document_id)
        async with self._database.transaction() as connection:
            found = await documents.page(
                connection, self._admit(caller), collection=collection, before=before, limit=limit + 1
            )
        more = found[limit] if len(found) > limit else None
        following = write_cursor(more.created_at.isoformat(), more.document_id) if more else None
        return Page(tuple(map(_view, found[:limit])), following)

    async def chunks(self, caller: Caller, document_id: str, *, cursor: str | None, limit: int) -> Page[FoundChunk]:
        """List a document's chunks in order, with the ids by which they are cited."""
        if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) <= LONGEST_POSITION // 2):
            message = f"The cursor {cursor[:60]!r} can't be read; send the next_cursor of the page before."
            raise MalformedError(message)
        admitted, after = self._admit(caller), int(cursor or 0)
        async with self._database.transaction() as connection:
            record = await documents.find(connection, admitted, document_id)
            if record is None:
                raise _unknown(document_id)
            found = await documents.chunks(
                connection, admitted.organization_id, document_id, after=after, limit=limit + 1
            )
        shown = tuple(
            FoundChunk(
                document_id, number, record.collection, chunk.content, chunk.heading, record.title, record.source,
                record.metadata,
            )
            for number, chunk in found[:limit]
        )  # fmt: skip
        return Page(shown, str(shown[-1].number) if len(found) > limit else None)

    async def search(self, lookup: Lookup, conversation_id: str | None = None) -> list[FoundChunk]:
        """Give the passages that fit best; those of a conversation as well, where one is named."""
        caller = self._admit(lookup.caller)
        conversation = row_key(caller.organization_id, conversation_id) if conversation_id is not None else None
        return await self._library.search(replace(lookup, caller=caller, conversation=conversation))

    async def remove(self, caller: Caller, document_id: str) -> None:
        """Erase a document with its chunks, or raise NotFoundError."""
        async with self._database.transaction() as connection:
            if not await documents.remove(connection, self._admit(caller), document_id):
                raise _unknown(document_id)


def _unknown(document_id: str) -> NotFoundError:
    return NotFoundError(f"There is no document {document_id!r}.", document_id=document_id)


def _view(record: DocumentRecord) -> DocumentView:
    return DocumentView(
        document_id=record.document_id,
        scope=record.scope,
        user_id=record.user_id,
        conversation_id=record.conversation_id,
        collection=record.collection,
        title=record.title,
        source=record.source,
        content_type=record.content_type,
        language=record.language,
        metadata=record.metadata,
        characters=record.characters,
        chunk_count=record.chunk_count,
        embedding_model=record.embedding_model,
        effective_at=iso(record.effective_at) if record.effective_at else None,
        expires_at=iso(record.expires_at) if record.expires_at else None,
        created_at=iso(record.created_at),
    )
