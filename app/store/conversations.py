"""Conversations: the row that every operation takes, and what clients ask of it.

`take` is the compare-and-set that lets one operation in: it sets the fence, and every later write of the operation
names that fence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, delete, func, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert

from app.domain.errors import ConversationBusyError, NotFoundError
from app.domain.turn import Caller
from app.store.database import Connection
from app.store.tables import conversations, fences, messages, pauses, replicas

_row = conversations.c


@dataclass(frozen=True, slots=True)
class Claim:
    """Who wants the conversation, and for what."""

    operation: UUID
    replica: UUID
    conversation: UUID
    caller: Caller
    conversation_id: str
    session_id: str
    persona_id: str
    stream_id: str


class ReplicaGoneError(Exception):
    """The process was marked dead: it may accept nothing until it has a new id."""


def unknown_conversation(conversation_id: str) -> NotFoundError:
    """Make the error for a conversation that is not there, or is another's: the two look the same."""
    return NotFoundError(f"There is no conversation {conversation_id!r}.", conversation_id=conversation_id)


async def take(connection: Connection, claim: Claim, *, create: bool) -> int:
    """Let the operation in and give its fence.

    Makes the conversation when `create` says so. Raises NotFoundError when it is not there or is another user's,
    ConversationBusyError when an operation runs, ReplicaGoneError when this process was marked dead.
    """
    alive = select(replicas.c.id).where(replicas.c.id == claim.replica, ~replicas.c.dead).exists()
    changes = {
        "fence": fences.next_value(),
        "running_operation": claim.operation,
        "running_replica": claim.replica,
        "running_stream": claim.stream_id,
        "persona_id": claim.persona_id,
        "updated_at": func.now(),
    }
    free = and_(_row.user_id == claim.caller.user_id, _row.running_operation.is_(None), alive)
    if create:
        values = {
            **changes,
            "id": claim.conversation,
            "organization_id": claim.caller.organization_id,
            "conversation_id": claim.conversation_id,
            "user_id": claim.caller.user_id,
            "session_id": claim.session_id,
        }
        upsert = insert(conversations).values(**values)
        statement = upsert.on_conflict_do_update(index_elements=["id"], set_=changes, where=free).returning(_row.fence)
        fence = await connection.scalar(statement)
    else:
        taking = update(conversations).where(_row.id == claim.conversation, free).values(**changes)
        fence = await connection.scalar(taking.returning(_row.fence))
    if fence is None:
        await _refuse(connection, claim)
    elif create and not await connection.scalar(select(alive)):
        raise ReplicaGoneError
    return int(fence or 0)


async def _refuse(connection: Connection, claim: Claim) -> None:
    query = select(_row.user_id, _row.running_operation, _row.running_stream).where(_row.id == claim.conversation)
    found = (await connection.execute(query)).first()
    if found is None or found.user_id != claim.caller.user_id:
        raise unknown_conversation(claim.conversation_id)
    if found.running_operation is None:
        raise ReplicaGoneError
    message = f"The stream {found.running_stream} still runs on this conversation; wait for its end, then try again."
    raise ConversationBusyError(message, stream_id=found.running_stream)


async def lock(connection: Connection, conversation: UUID) -> tuple[int, UUID | None] | None:
    """Lock the conversation and give its fence and running operation; None when it is gone."""
    query = select(_row.fence, _row.running_operation).where(_row.id == conversation).with_for_update()
    found = (await connection.execute(query)).first()
    return None if found is None else (found.fence, found.running_operation)


async def release(connection: Connection, conversation: UUID, *, operation: UUID, fence: int) -> bool:
    """Let the operation go; False when it no longer holds its fence."""
    statement = (
        update(conversations)
        .where(_row.id == conversation, _row.fence == fence, _row.running_operation == operation)
        .values(running_operation=None, running_replica=None, running_stream=None, updated_at=func.now())
        .returning(_row.id)
    )
    return await connection.scalar(statement) is not None


@dataclass(frozen=True, slots=True)
class Seized:
    """A conversation that was taken from a process that has gone."""

    fence: int
    organization_id: str
    user_id: str
    session_id: str


async def seize(connection: Connection, conversation: UUID, operation: UUID, *, only_dead: bool) -> Seized | None:
    """Take the conversation from an operation, and leave it idle under a higher fence.

    With `only_dead` this is done only when the operation's replica is dead. None when the operation has ended in the
    meantime, or another process was faster.
    """
    locked = select(_row.id).where(_row.id == conversation, _row.running_operation == operation)
    if only_dead:
        alive = select(replicas.c.id).where(replicas.c.id == _row.running_replica, ~replicas.c.dead).exists()
        locked = locked.where(~alive).with_for_update(skip_locked=True)
    else:
        locked = locked.with_for_update()
    statement = (
        update(conversations)
        .where(_row.id.in_(locked))
        .values(
            fence=fences.next_value(),
            running_operation=None,
            running_replica=None,
            running_stream=None,
            updated_at=func.now(),
        )
        .returning(_row.fence, _row.organization_id, _row.user_id, _row.session_id)
    )
    found = (await connection.execute(statement)).first()
    return None if found is None else Seized(*found)


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
    connection: Connection, claim: Claim, *, title: str | None, metadata: Mapping[str, Any], persona_id: str | None
) -> bool:
    """Make an idle conversation; False when the name is taken."""
    statement = (
        insert(conversations)
        .values(
            id=claim.conversation,
            organization_id=claim.caller.organization_id,
            conversation_id=claim.conversation_id,
            user_id=claim.caller.user_id,
            session_id=claim.session_id,
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
