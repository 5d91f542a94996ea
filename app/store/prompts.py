"""The prompts of operations, where the operator has them kept; they go with the events of their stream."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from app.store.database import Connection
from app.store.tables import turn_prompts

_row = turn_prompts.c


async def keep(
    connection: Connection, conversation: UUID, stream_id: str, fence: int, document: Mapping[str, Any]
) -> None:
    """Store what an operation's model was told first; the first word of a fence stays."""
    values = {"conversation": conversation, "stream_id": stream_id, "fence": fence, "document": dict(document)}
    await connection.execute(insert(turn_prompts).values(**values).on_conflict_do_nothing())


async def of_stream(connection: Connection, conversation: UUID, stream_id: str) -> list[Mapping[str, Any]]:
    """Give the prompts of a stream's operations, the oldest first."""
    query = (
        select(_row.document).where(_row.conversation == conversation, _row.stream_id == stream_id).order_by(_row.fence)
    )
    return list(await connection.scalars(query))
