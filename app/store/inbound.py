"""Inbound messages: each accepted operation as the facade produced it, and how far it got. What a takeover finds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import func, insert, select, update

from app.domain.turn import OperationKind
from app.store.database import Connection
from app.store.tables import inbound_messages

_row = inbound_messages.c


@dataclass(frozen=True, slots=True)
class InboundRecord:
    """One accepted operation."""

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


async def record(connection: Connection, entry: InboundRecord) -> None:
    """Keep a newly accepted operation."""
    values = {name: getattr(entry, name) for name in entry.__slots__}
    await connection.execute(insert(inbound_messages).values(**{**values, "payload": dict(entry.payload)}))


async def find(connection: Connection, conversation: UUID, operation: UUID) -> InboundRecord | None:
    """Give the operation, or None."""
    columns = [_row[name] for name in InboundRecord.__slots__]
    query = select(*columns).where(_row.conversation == conversation, _row.operation == operation)
    found = (await connection.execute(query)).first()
    if found is None:
        return None
    values = found._asdict()
    values["kind"] = OperationKind(values["kind"])
    return InboundRecord(**values)


async def touch(connection: Connection, conversation: UUID, operation: UUID, fence: int) -> bool:
    """Say that the outside world may have seen something of the operation; False when its fence is gone."""
    statement = (
        update(inbound_messages)
        .where(_row.conversation == conversation, _row.operation == operation, _row.fence == fence)
        .where(_row.status == "running")
        .values(touched=True)
        .returning(_row.operation)
    )
    return await connection.scalar(statement) is not None


async def finish(connection: Connection, conversation: UUID, operation: UUID, status: str) -> None:
    """Say how the operation ended."""
    await connection.execute(
        update(inbound_messages)
        .where(_row.conversation == conversation, _row.operation == operation)
        .values(status=status, ended_at=func.now())
    )
