"""Retention: the events of streams that have ended long ago go, and with them what a repeated request would need.

A stream's own row stays until its conversation is erased: later calls are still told how it ended.
"""

from datetime import timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import ColumnElement, delete, exists, func, literal, or_, select, update

from app.domain.pause import PauseState
from app.store.database import Connection
from app.store.tables import inbound_messages, pauses, stream_events, streams, turn_prompts

_row = streams.c
SETTLING: Final = timedelta(seconds=10)
"""How long the events of a conversation that keeps nothing stay after their end, for those who are reading them."""


async def due(connection: Connection, *, keep: timedelta, limit: int) -> list[tuple[UUID, str]]:
    """Give streams whose events are to go: those that ended longer ago than `keep`, the oldest first.

    One whose pause is being continued on another stream stays: whoever takes that over needs the pause.
    """
    old = _row.ended_at < func.now() - literal(keep)
    unkept = _row.ended_at < func.now() - literal(min(SETTLING, keep))
    query = (
        select(_row.conversation, _row.stream_id)
        .where(_row.ended_at.is_not(None), ~_row.expired, or_(old, _row.ephemeral & unkept), ~_continued())
        .order_by(_row.ended_at)
        .limit(limit)
    )
    return [(row.conversation, row.stream_id) for row in await connection.execute(query)]


def _continued() -> ColumnElement[bool]:
    pause = pauses.c
    taken = pause.state == PauseState.RECORDED.value
    return exists().where(pause.conversation == _row.conversation, pause.stream_id == _row.stream_id, taken)


async def expire(connection: Connection, conversation: UUID, stream_id: str) -> bool:
    """Remove a stream's events, its accepted requests (so their keys are free again), its pauses and its prompts.

    What a conversation that keeps nothing has answered goes too. False when another process is at it or was faster.
    """
    mine = (_row.conversation == conversation, _row.stream_id == stream_id)
    taken = select(_row.ephemeral).where(*mine, ~_row.expired).with_for_update(skip_locked=True)
    ephemeral = await connection.scalar(taken)
    if ephemeral is None:
        return False
    for table in (stream_events, inbound_messages, pauses, turn_prompts):
        columns = table.c
        await connection.execute(
            delete(table).where(columns.conversation == conversation, columns.stream_id == stream_id)
        )
    told = {"final_response": None, "error": None} if ephemeral else {}
    await connection.execute(update(streams).where(*mine).values(expired=True, **told))
    return True
