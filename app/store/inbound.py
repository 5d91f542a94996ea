"""Inbound messages: each accepted operation as the facade produced it, and how far it got. What a takeover finds.

A turn that waits for its conversation is a row too, with a place in the queue, so that order holds over all replicas.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from asyncpg import UniqueViolationError
from sqlalchemy import (
    JSON,
    ColumnElement,
    Row,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    tuple_,
    update,
)

from app.domain.frozen import dataclass
from app.domain.jsontext import dumps_text
from app.domain.turn import OperationKind
from app.store.database import Connection
from app.store.sql import Statement
from app.store.tables import conversations, fences, inbound_messages, replicas

_row = inbound_messages.c
_KEY_INDEX: Final = "uq_inbound_messages_key"


@dataclass(frozen=True, slots=True)
class InboundRecord:
    """One operation. `fence` is 0 while it waits."""

    conversation: UUID
    operation: UUID
    kind: OperationKind
    status: str
    stream_id: str
    turn_id: str
    fence: int
    attempt: int
    touched: bool
    pause_id: str | None
    payload: Mapping[str, Any]
    idempotency_key: str | None = None
    request_hash: str | None = None


class KeyTakenError(Exception):
    """Another operation has the idempotency key."""


def values(entry: InboundRecord) -> dict[str, Any]:
    """Give the values of `recording`."""
    named = {name: getattr(entry, name) for name in entry.__slots__}
    return {**named, "kind": entry.kind.value, "payload": dumps_text(dict(entry.payload))}


@contextmanager
def refusing_keys() -> Iterator[None]:
    """Turn the database's word on a key that is in use into KeyTakenError."""
    try:
        yield
    except UniqueViolationError as error:
        if error.constraint_name == _KEY_INDEX:
            raise KeyTakenError from error
        raise


def recording(fence: str = ":fence::bigint", condition: str = "true") -> str:
    """Give the statement that keeps an accepted operation, if the condition holds; one that waited keeps its row."""
    return f"""
INSERT INTO inbound_messages (
    conversation, operation, kind, status, stream_id, turn_id, fence, attempt, touched, pause_id, payload,
    idempotency_key, request_hash
)
SELECT :conversation::uuid, :operation::uuid, :kind::text, :status::text, :stream_id::text, :turn_id::text,
    {fence}, :attempt::int, :touched::boolean, :pause_id::text, :payload::json,
    :idempotency_key::text, :request_hash::text
WHERE {condition}
ON CONFLICT (conversation, operation) DO UPDATE SET
    kind = excluded.kind, status = excluded.status, stream_id = excluded.stream_id, turn_id = excluded.turn_id,
    fence = excluded.fence, attempt = excluded.attempt, touched = excluded.touched, pause_id = excluded.pause_id,
    payload = excluded.payload, idempotency_key = excluded.idempotency_key, request_hash = excluded.request_hash
"""


def finishing(condition: str = "true") -> str:
    """Give the statement that says how the operation ended, if the condition holds; with `erase` its payload goes."""
    return f"""
UPDATE inbound_messages SET
    status = :status::text, ended_at = now(), journal = '{{}}',
    payload = CASE WHEN :erase::boolean THEN '{{}}' ELSE payload END
WHERE conversation = :conversation::uuid AND operation = :operation::uuid AND {condition}
"""  # noqa: S608 - put together of constants


_FINISH: Final = Statement(finishing())
_TOUCH: Final = Statement("""
UPDATE inbound_messages SET touched = true
WHERE conversation = :conversation::uuid AND operation = :operation::uuid AND fence = :fence::bigint
    AND status = 'running'
RETURNING operation
""")
_THIS: Final = (_row.conversation == bindparam("of"), _row.operation == bindparam("this"))
_FIND: Final = select(*(_row[name] for name in InboundRecord.__slots__)).where(*_THIS)
_FIND_BY_KEY: Final = select(*(_row[name] for name in InboundRecord.__slots__)).where(
    _row.conversation == bindparam("of"),
    _row.kind == bindparam("what"),
    _row.idempotency_key == bindparam("key"),
)


async def find(connection: Connection, conversation: UUID, operation: UUID) -> InboundRecord | None:
    """Give the operation, or None."""
    return _found((await connection.execute(_FIND, {"of": conversation, "this": operation})).first())


async def find_by_key(
    connection: Connection, conversation: UUID, kind: OperationKind, key: str
) -> InboundRecord | None:
    """Give the operation that an idempotency key named, or None."""
    return _found(
        (await connection.execute(_FIND_BY_KEY, {"of": conversation, "what": kind.value, "key": key})).first()
    )


def _found(found: Row[*tuple[Any, ...]] | None) -> InboundRecord | None:
    if found is None:
        return None
    values = found._asdict()
    values["kind"] = OperationKind(values["kind"])
    return InboundRecord(**values)


async def was_touched(connection: Connection, conversation: UUID, operation: UUID) -> bool:
    """Tell whether the outside world may have seen something of the operation."""
    query = select(_row.touched).where(_row.conversation == conversation, _row.operation == operation)
    return bool(await connection.scalar(query))


async def touch(connection: Connection, conversation: UUID, operation: UUID, fence: int) -> bool:
    """Say that the outside world may have seen something of the operation; False when its fence is gone."""
    named = {"conversation": conversation, "operation": operation, "fence": fence}
    return await _TOUCH.first(connection, named) is not None


async def journal(
    connection: Connection, conversation: UUID, operation: UUID, fence: int, *, place: int, entry: Mapping[str, Any]
) -> bool:
    """Keep what a complete tool round gave, at its place (from 1); False when the fence is gone.

    Writing the same round again changes nothing.
    """
    statement = (
        update(inbound_messages)
        .where(_row.conversation == conversation, _row.operation == operation, _row.fence == fence)
        .where(_row.status == "running")
        .values({_row.journal[place]: literal(dict(entry), JSON)})
        .returning(_row.operation)
    )
    return await connection.scalar(statement) is not None


async def rounds(connection: Connection, conversation: UUID, operation: UUID) -> list[Mapping[str, Any]]:
    """Give what the operation's complete tool rounds gave, the first one first."""
    query = select(_row.journal).where(_row.conversation == conversation, _row.operation == operation)
    return list(await connection.scalar(query) or ())


async def run_again(connection: Connection, entry: InboundRecord, fence: int) -> None:
    """Say that the operation runs once more, under another fence."""
    await connection.execute(
        update(inbound_messages)
        .where(_row.conversation == entry.conversation, _row.operation == entry.operation)
        .values(attempt=_row.attempt + 1, fence=fence)
    )


async def finish(
    connection: Connection, conversation: UUID, operation: UUID, status: str, *, erase: bool = False
) -> None:
    """Say how the operation ended; with `erase` its payload goes."""
    named = {"conversation": conversation, "operation": operation, "status": status, "erase": erase}
    await _FINISH.rows(connection, named)


# Waiting ------------------------------------------------------------------------------------------------------------


def live_waiter() -> ColumnElement[bool]:
    """Give the condition of a waiter whose process lives: a dead one blocks nobody."""
    alive = exists().where(replicas.c.id == _row.replica, ~replicas.c.dead, replicas.c.expires_at > func.now())
    return and_(_row.status == "waiting", alive)


async def enqueue(
    connection: Connection, entry: InboundRecord, *, replica: UUID, at_head: bool, longest: int
) -> int | None:
    """Let a turn wait and give its place; None when `longest` turns wait already.

    The conversation is locked by the caller. At the head, a turn replaces whoever was at the head before it: an
    interrupting turn that has not started yet.
    """
    if at_head:
        await connection.execute(
            delete(inbound_messages).where(
                _row.conversation == entry.conversation, _row.status == "waiting", _row.place < 0
            )
        )
    waiting = select(func.count()).where(_row.conversation == entry.conversation, live_waiter())
    if (await connection.scalar(waiting) or 0) >= longest:
        return None
    number = int(await connection.scalar(select(fences.next_value())) or 0)
    place = -number if at_head else number
    values = {name: getattr(entry, name) for name in entry.__slots__}
    values |= {"payload": dict(entry.payload), "place": place, "replica": replica, "idempotency_key": None}
    await connection.execute(insert(inbound_messages).values(**values))
    return place


async def at_head(connection: Connection, conversation: UUID) -> InboundRecord | None:
    """Give the turn that has gone to the head of the queue and has not started yet, or None."""
    query = select(*(_row[name] for name in InboundRecord.__slots__)).where(
        _row.conversation == conversation, _row.status == "waiting", _row.place < 0
    )
    return _found((await connection.execute(query)).first())


async def is_next(connection: Connection, conversation: UUID, operation: UUID, place: int) -> bool | None:
    """Tell whether the waiter may try now; None when it was replaced."""
    mine = exists().where(_row.conversation == conversation, _row.operation == operation, _row.status == "waiting")
    older = exists().where(_row.conversation == conversation, live_waiter(), _row.place < place)
    free = exists().where(conversations.c.id == conversation, conversations.c.running_operation.is_(None))
    found = (await connection.execute(select(mine, and_(free, ~older)))).one()
    return bool(found[1]) if found[0] else None


async def waiters_of(connection: Connection, replica: UUID) -> list[tuple[UUID, UUID]]:
    """Give (conversation, operation) of the turns that wait in the process, as far as the database knows."""
    query = select(_row.conversation, _row.operation).where(_row.status == "waiting", _row.replica == replica)
    return [(row.conversation, row.operation) for row in await connection.execute(query)]


async def forget_waiters(connection: Connection) -> None:
    """Remove turns that waited in processes of which nothing is known any more."""
    known = exists().where(replicas.c.id == _row.replica)
    lost = select(_row.conversation, _row.operation).where(_row.status == "waiting", ~known)
    await connection.execute(
        delete(inbound_messages).where(
            tuple_(_row.conversation, _row.operation).in_(lost.with_for_update(skip_locked=True))
        )
    )


async def leave_queue(connection: Connection, conversation: UUID, operation: UUID) -> None:
    """Wait no more."""
    await connection.execute(
        delete(inbound_messages).where(
            _row.conversation == conversation, _row.operation == operation, _row.status == "waiting"
        )
    )
