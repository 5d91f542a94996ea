"""The claim on a conversation's row: the compare-and-set that lets one operation in.

`take` sets the fence, and every later write of the operation names that fence. Cancels, take-overs and small changes
of an idle conversation go through the same row.
"""

from typing import Any, Final, NoReturn
from uuid import UUID

from sqlalchemy import Select, func, or_, select, update

from app.domain.errors import ConversationBusyError
from app.domain.frozen import dataclass
from app.domain.turn import Caller
from app.store.conversations import unknown_conversation
from app.store.database import Connection
from app.store.sql import Statement
from app.store.tables import conversations, fences, replicas

_row = conversations.c


@dataclass(frozen=True, slots=True)
class Claim:
    """Who wants the conversation, and for what. `place` is a waiting turn's place in the queue."""

    operation: UUID
    replica: UUID
    conversation: UUID
    caller: Caller
    conversation_id: str
    session_id: str
    persona_id: str
    stream_id: str
    place: int | None = None


class ReplicaGoneError(Exception):
    """The process was marked dead: it may accept nothing until it has a new id."""


_TAKEN: Final = """
    fence = nextval('fences'), running_operation = :operation::uuid, running_replica = :replica::uuid,
    running_stream = :stream::text, persona_id = :persona::text, updated_at = now()
"""
_ALIVE: Final = "EXISTS (SELECT FROM replicas WHERE id = :replica::uuid AND NOT dead)"
_TAKE: Final = Statement(f"""
UPDATE conversations SET
    {_TAKEN}
WHERE id = :id::uuid AND user_id = :user::text AND running_operation IS NULL
    AND {_ALIVE}
RETURNING fence
""")  # noqa: S608 - put together of constants


def taking(condition: str = "true") -> str:
    """Give the statement with which a live process makes the conversation, if the condition holds.

    Or takes one that is free and that no living waiter is before. Whoever waits for the row's lock gets the newest row
    beside a queue (and a condition) as it was before: then that is not the row it saw, and it is not taken.
    """
    return f"""
INSERT INTO conversations (
    id, organization_id, conversation_id, user_id, session_id,
    fence, running_operation, running_replica, running_stream, persona_id
)
SELECT :id::uuid, :organization::text, :named::text, :user::text, :session::text,
    nextval('fences'), :operation::uuid, :replica::uuid, :stream::text, :persona::text
WHERE {_ALIVE} AND {condition}
ON CONFLICT (id) DO UPDATE SET
    {_TAKEN}
WHERE conversations.user_id = :user::text AND conversations.running_operation IS NULL
    AND NOT EXISTS (
        SELECT FROM inbound_messages waiter
        WHERE waiter.conversation = conversations.id AND waiter.status = 'waiting'
            AND (:place::bigint IS NULL OR waiter.place < :place::bigint)
            AND EXISTS (
                SELECT FROM replicas WHERE id = waiter.replica AND NOT dead AND expires_at > now()
            )
    )
    AND conversations.xmin = (SELECT seen.xmin FROM conversations seen WHERE seen.id = :id::uuid)
RETURNING fence
"""  # noqa: S608 - put together of constants


_TAKE_OR_MAKE: Final = Statement(taking())


async def take(connection: Connection, claim: Claim, *, create: bool) -> int:
    """Let the operation in and give its fence.

    With `create` (a turn) the conversation is made when it is new, and turns that wait longer go first. Raises
    NotFoundError when it is not there or is another user's, ConversationBusyError when an operation runs or others
    wait, ReplicaGoneError when this process was marked dead.
    """
    given = values(claim)
    statement = _TAKE_OR_MAKE if create else _TAKE
    taken = await statement.first(connection, given)
    if taken is None:
        await _check_free(connection, claim)
        # Others wait for it, or the queue was an older one. The row is locked by now, so this look sees what is.
        taken = await statement.first(connection, given) if create else None
    if taken is None:
        _busy(None)
    return int(taken["fence"])


def values(claim: Claim) -> dict[str, Any]:
    """Give the values of `taking`."""
    return {
        "id": claim.conversation,
        "organization": claim.caller.organization_id,
        "named": claim.conversation_id,
        "user": claim.caller.user_id,
        "session": claim.session_id,
        "operation": claim.operation,
        "replica": claim.replica,
        "stream": claim.stream_id,
        "persona": claim.persona_id,
        "place": claim.place,
    }


async def _check_free(connection: Connection, claim: Claim) -> None:
    """Raise what keeps the claim from the conversation, unless that is free."""
    alive = select(replicas.c.id).where(replicas.c.id == claim.replica, ~replicas.c.dead).exists()
    if not await connection.scalar(select(alive)):
        raise ReplicaGoneError
    query = select(_row.user_id, _row.running_operation, _row.running_stream).where(_row.id == claim.conversation)
    found = (await connection.execute(query)).first()
    if found is None or found.user_id != claim.caller.user_id:
        raise unknown_conversation(claim.conversation_id)
    if found.running_operation is not None:
        _busy(found.running_stream)


def _busy(running_stream: str | None) -> NoReturn:
    if running_stream is None:
        message = "Other turns wait for this conversation; send on_busy: wait to wait behind them."
    else:
        message = f"The stream {running_stream} still runs on this conversation; wait for its end, then try again."
    raise ConversationBusyError(message, stream_id=running_stream)


@dataclass(frozen=True, slots=True)
class Running:
    """The operation that runs on a conversation."""

    operation: UUID
    stream_id: str
    fence: int


async def ask_to_cancel(connection: Connection, conversation: UUID, *, stream_id: str | None = None) -> Running | None:
    """Ask the operation that runs (on the stream, when one is named) to end; None when none does.

    The intent names the fence it found, so it can't hit another operation. Its own process reads it within a second.
    """
    statement = (
        update(conversations)
        .where(_row.id == conversation, _row.running_operation.is_not(None))
        .values(cancel_fence=_row.fence)
        .returning(_row.running_operation, _row.running_stream, _row.fence)
    )
    if stream_id is not None:
        statement = statement.where(_row.running_stream == stream_id)
    found = (await connection.execute(statement)).first()
    return None if found is None else Running(*found)


async def to_cancel(connection: Connection, replica: UUID) -> list[Running]:
    """Give the operations of this process that somebody asked to end."""
    query = select(_row.running_operation, _row.running_stream, _row.fence).where(
        _row.running_replica == replica, _row.running_operation.is_not(None), _row.cancel_fence == _row.fence
    )
    return [Running(*row) for row in await connection.execute(query)]


async def held_by(connection: Connection, replica: UUID) -> set[int]:
    """Give the fences of all operations that a process runs."""
    query = select(_row.fence).where(_row.running_replica == replica, _row.running_operation.is_not(None))
    return set(await connection.scalars(query))


async def of_replica(connection: Connection, replica: UUID) -> list[tuple[UUID, UUID]]:
    """Give (conversation, operation) of what the process runs, as far as the database knows."""
    query = select(_row.id, _row.running_operation).where(
        _row.running_replica == replica, _row.running_operation.is_not(None)
    )
    return [(row.id, row.running_operation) for row in await connection.execute(query)]


async def take_idle(connection: Connection, conversation: UUID) -> int | None:
    """Raise the fence of an idle conversation for a change in this transaction alone; None while an operation runs."""
    statement = (
        update(conversations)
        .where(_row.id == conversation, _row.running_operation.is_(None))
        .values(fence=fences.next_value(), updated_at=func.now())
        .returning(_row.fence)
    )
    fence: int | None = await connection.scalar(statement)
    return fence


async def lock(connection: Connection, conversation: UUID) -> tuple[int, UUID | None] | None:
    """Lock the conversation and give its fence and running operation; None when it is gone."""
    query = select(_row.fence, _row.running_operation).where(_row.id == conversation).with_for_update()
    found = (await connection.execute(query)).first()
    return None if found is None else (found.fence, found.running_operation)


async def lock_queue(connection: Connection, conversation: UUID) -> None:
    """Lock the conversation to change who waits for it; a claim that has looked at the queue before looks again."""
    await connection.execute(update(conversations).where(_row.id == conversation).values(updated_at=_row.updated_at))


RELEASE: Final = """
UPDATE conversations SET
    running_operation = NULL, running_replica = NULL, running_stream = NULL, updated_at = now()
WHERE id = :conversation::uuid AND fence = :fence::bigint AND running_operation = :operation::uuid
RETURNING id
"""
"""Lets the operation go, if it still holds its fence."""


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """A conversation whose operation is to be run again, by this process, under a higher fence."""

    fence: int
    caller: Caller
    conversation_id: str
    session_id: str


async def reclaim(connection: Connection, conversation: UUID, operation: UUID, replica: UUID) -> Reclaimed | None:
    """Take an operation over from a dead replica, to run it again here.

    None when it has ended, when another process was faster, or when somebody asked for its end.
    """
    wanted = or_(_row.cancel_fence.is_(None), _row.cancel_fence != _row.fence)
    statement = (
        update(conversations)
        .where(_row.id.in_(_orphan(conversation, operation)), wanted)
        .values(fence=fences.next_value(), running_replica=replica, updated_at=func.now())
        .returning(_row.fence, _row.user_id, _row.organization_id, _row.conversation_id, _row.session_id)
    )
    found = (await connection.execute(statement)).first()
    if found is None:
        return None
    caller = Caller(found.user_id, found.organization_id)
    return Reclaimed(found.fence, caller, found.conversation_id, found.session_id)


def _orphan(conversation: UUID, operation: UUID) -> Select[UUID]:
    alive = select(replicas.c.id).where(replicas.c.id == _row.running_replica, ~replicas.c.dead).exists()
    running = select(_row.id).where(_row.id == conversation, _row.running_operation == operation)
    return running.where(~alive).with_for_update(skip_locked=True)


@dataclass(frozen=True, slots=True)
class Seized:
    """A conversation that was taken from a process that has gone."""

    fence: int
    organization_id: str
    user_id: str
    session_id: str
    conversation_id: str


async def seize(connection: Connection, conversation: UUID, operation: UUID, *, only_dead: bool) -> Seized | None:
    """Take the conversation from an operation, and leave it idle under a higher fence.

    With `only_dead` this is done only when the operation's replica is dead. None when the operation has ended in the
    meantime, or another process was faster.
    """
    running = select(_row.id).where(_row.id == conversation, _row.running_operation == operation)
    locked = _orphan(conversation, operation) if only_dead else running.with_for_update()
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
        .returning(_row.fence, _row.organization_id, _row.user_id, _row.session_id, _row.conversation_id)
    )
    found = (await connection.execute(statement)).first()
    return None if found is None else Seized(*found)
