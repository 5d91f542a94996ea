"""Conversations as clients know them: made, listed, read, renamed, erased. Operations take them in `claims`."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Select, delete, func, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert

from app.domain.errors import NotFoundError
from app.domain.frozen import dataclass
from app.domain.ids import row_key
from app.domain.turn import Caller
from app.store.database import Connection
from app.store.tables import conversations, fences, messages, pauses

_row = conversations.c


def unknown_conversation(conversation_id: str) -> NotFoundError:
    """Make the error for a conversation that is not there, or is another's: the two look the same."""
    return NotFoundError(f"There is no conversation {conversation_id!r}.", conversation_id=conversation_id)


@dataclass(frozen=True, slots=True)
class ConversationRecord:
    """A conversation as it is stored, with how many messages it has and the pause it holds."""

    id: UUID
    organization_id: str
    conversation_id: str
    user_id: str
    session_id: str
    persona_id: str | None
    title: str | None
    metadata: Mapping[str, Any]
    created_at: Any
    updated_at: Any
    running_stream: str | None
    message_count: int
    pause_id: str | None


def _records() -> Select[Any]:
    count = (
        select(func.coalesce(func.max(messages.c.position), 0))
        .where(messages.c.conversation == _row.id)
        .scalar_subquery()
    )
    held = select(pauses.c.pause_id).where(pauses.c.conversation == _row.id, pauses.c.state == "held").scalar_subquery()
    return select(
        _row.id,
        _row.organization_id,
        _row.conversation_id,
        _row.user_id,
        _row.session_id,
        _row.persona_id,
        _row.title,
        _row.metadata,
        _row.created_at,
        _row.updated_at,
        _row.running_stream,
        count.label("message_count"),
        held.label("pause_id"),
    )


async def find(connection: Connection, conversation: UUID, caller: Caller) -> ConversationRecord | None:
    """Give the caller's conversation; None when it is not there or is another's."""
    query = _records().where(
        _row.id == conversation, _row.organization_id == caller.organization_id, _row.user_id == caller.user_id
    )
    found = (await connection.execute(query)).first()
    return None if found is None else ConversationRecord(**found._asdict())


async def create(
    connection: Connection,
    caller: Caller,
    conversation_id: str,
    *,
    session_id: str,
    title: str | None,
    metadata: Mapping[str, Any],
    persona_id: str | None,
) -> bool:
    """Make an idle conversation; False when the name is taken."""
    statement = (
        insert(conversations)
        .values(
            id=row_key(caller.organization_id, conversation_id),
            organization_id=caller.organization_id,
            conversation_id=conversation_id,
            user_id=caller.user_id,
            session_id=session_id,
            persona_id=persona_id,
            title=title,
            metadata=dict(metadata),
            fence=fences.next_value(),
        )
        .on_conflict_do_nothing()
        .returning(_row.id)
    )
    return await connection.scalar(statement) is not None


async def page(
    connection: Connection, caller: Caller, *, before: tuple[Any, UUID] | None, limit: int
) -> list[ConversationRecord]:
    """Give the caller's conversations, the newest change first, that lie behind `before`."""
    query = _records().where(_row.organization_id == caller.organization_id, _row.user_id == caller.user_id)
    if before is not None:
        query = query.where(tuple_(_row.updated_at, _row.id) < before)
    rows = await connection.execute(query.order_by(_row.updated_at.desc(), _row.id.desc()).limit(limit))
    return [ConversationRecord(**row._asdict()) for row in rows]


async def change(connection: Connection, conversation: UUID, changes: Mapping[str, Any]) -> None:
    """Set title or metadata."""
    await connection.execute(
        update(conversations).where(_row.id == conversation).values(**changes, updated_at=func.now())
    )


async def erase(connection: Connection, conversation: UUID) -> None:
    """Delete the conversation and everything that belongs to it."""
    await connection.execute(delete(conversations).where(_row.id == conversation))


async def preparation(connection: Connection, conversation: UUID) -> Mapping[str, Any]:
    """Give what the conversation keeps of how its turns were prepared; nothing for one that there is not yet."""
    return await connection.scalar(select(_row.preparation).where(_row.id == conversation)) or {}


async def keep_preparation(connection: Connection, conversation: UUID, changes: Mapping[str, Any]) -> None:
    """Change parts of that; the transaction holds the conversation."""
    kept = await preparation(connection, conversation)
    await connection.execute(
        update(conversations).where(_row.id == conversation).values(preparation={**kept, **changes})
    )
