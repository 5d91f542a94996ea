"""Documents and their chunks: kept, listed, erased. What finds them is in `passages`."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, and_, bindparam, delete, func, insert, literal, or_, select, tuple_
from sqlalchemy.dialects.postgresql import REGCONFIG
from sqlalchemy.exc import IntegrityError

from app.domain.documents import Chunk, DocumentScope
from app.domain.frozen import dataclass
from app.domain.turn import Caller
from app.store.database import Connection
from app.store.tables import conversations, document_chunks, documents

_row = documents.c


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """A document as it is stored. `words` is the Postgres configuration that its words were read with."""

    organization_id: str
    document_id: str
    scope: DocumentScope
    user_id: str
    conversation: UUID | None
    conversation_id: str | None
    collection: str
    title: str | None
    source: str | None
    content_type: str
    language: str | None
    words: str
    metadata: dict[str, Any]
    characters: int
    chunk_count: int
    embedding_model: str | None
    effective_at: datetime | None
    expires_at: datetime | None
    created_at: datetime


class DocumentTakenError(Exception):
    """Another document has the id."""


def visible(caller: Caller, conversation: UUID | None = None, *, all_own: bool = False) -> ColumnElement[bool]:
    """Give the condition for what a caller may find: the organization's, the caller's own, and this conversation's.

    With `all_own`, those of all the caller's conversations.
    """
    own = _row.user_id == caller.user_id
    allowed = [_row.scope == "organization", and_(_row.scope == "user", own)]
    if all_own:
        allowed.append(and_(_row.scope == "conversation", own))
    elif conversation is not None:
        allowed.append(and_(_row.scope == "conversation", _row.conversation == conversation, own))
    return and_(_row.organization_id == caller.organization_id, or_(*allowed))


async def add(
    connection: Connection, record: DocumentRecord, chunks: Sequence[Chunk], vectors: Sequence[Sequence[float]]
) -> None:
    """Keep a document with its chunks; `vectors` are of all chunks or of none. DocumentTakenError for a taken id."""
    values = {name: getattr(record, name) for name in DocumentRecord.__slots__}
    try:
        await connection.execute(insert(documents).values(**values))
    except IntegrityError as error:
        raise DocumentTakenError from error
    part = document_chunks.c
    statement = insert(document_chunks).values(
        organization_id=record.organization_id,
        document_id=record.document_id,
        number=bindparam("_number", type_=part.number.type),
        heading=bindparam("_heading", type_=part.heading.type),
        content=bindparam("_content", type_=part.content.type),
        words=func.to_tsvector(literal(record.words, REGCONFIG), bindparam("_text", type_=part.content.type)),
        embedding_model=record.embedding_model if vectors else None,
        embedding=bindparam("_embedding", type_=part.embedding.type),
    )
    rows = [
        {
            "_number": number,
            "_heading": chunk.heading,
            "_content": chunk.content,
            "_text": chunk.content if chunk.heading is None else f"{chunk.heading}\n{chunk.content}",
            "_embedding": list(vectors[number - 1]) if vectors else None,
        }
        for number, chunk in enumerate(chunks, start=1)
    ]
    await connection.execute(statement, rows)


async def lock_conversation(connection: Connection, conversation: UUID, caller: Caller) -> bool:
    """Hold the caller's conversation until the transaction ends; False when there is none."""
    mine = (conversations.c.organization_id == caller.organization_id) & (conversations.c.user_id == caller.user_id)
    query = (
        select(conversations.c.id)
        .where(conversations.c.id == conversation, mine)
        .with_for_update(read=True, key_share=True)
    )
    return await connection.scalar(query) is not None


async def find(connection: Connection, caller: Caller, document_id: str) -> DocumentRecord | None:
    """Give a document that the caller may see."""
    query = _records().where(_row.document_id == document_id, visible(caller, all_own=True))
    found = (await connection.execute(query)).first()
    return None if found is None else DocumentRecord(**found._asdict())


async def page(
    connection: Connection,
    caller: Caller,
    *,
    collection: str | None,
    before: tuple[datetime, str] | None,
    limit: int,
) -> list[DocumentRecord]:
    """Give documents that the caller may see, the newest first."""
    query = _records().where(visible(caller, all_own=True))
    if collection is not None:
        query = query.where(_row.collection == collection)
    if before is not None:
        query = query.where(tuple_(_row.created_at, _row.document_id) <= before)
    rows = await connection.execute(query.order_by(_row.created_at.desc(), _row.document_id.desc()).limit(limit))
    return [DocumentRecord(**row._asdict()) for row in rows]


async def chunks(
    connection: Connection, organization_id: str, document_id: str, *, after: int, limit: int
) -> list[tuple[int, Chunk]]:
    """Give a document's chunks with their numbers, those after `after`."""
    part = document_chunks.c
    query = (
        select(part.number, part.content, part.heading)
        .where(part.organization_id == organization_id, part.document_id == document_id, part.number > after)
        .order_by(part.number)
        .limit(limit)
    )
    return [(row.number, Chunk(row.content, row.heading)) for row in await connection.execute(query)]


async def remove(connection: Connection, caller: Caller, document_id: str) -> bool:
    """Erase a document that the caller may see; False when there is none."""
    statement = delete(documents).where(_row.document_id == document_id, visible(caller, all_own=True))
    return await connection.scalar(statement.returning(_row.document_id)) is not None


async def forget(connection: Connection, conversation: UUID) -> None:
    """Erase the documents of a conversation, which the transaction holds."""
    await connection.execute(delete(documents).where(_row.conversation == conversation))


async def forget_user(connection: Connection, caller: Caller) -> None:
    """Erase the documents that are the user's own; those of the organization stay."""
    mine = and_(_row.organization_id == caller.organization_id, _row.user_id == caller.user_id)
    await connection.execute(delete(documents).where(mine, _row.scope != "organization"))


def _records() -> Select[Any]:
    return select(*(_row[name] for name in DocumentRecord.__slots__))
