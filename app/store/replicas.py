"""Replicas: one row per process start, renewed while the process lives. Times are the database's alone."""

from collections.abc import Collection
from datetime import timedelta
from typing import Final
from uuid import UUID

from sqlalchemy import func, literal, select, text, update
from sqlalchemy.dialects.postgresql import insert

from app.store.database import Connection
from app.store.tables import conversations, replicas

_row = replicas.c


async def register(connection: Connection, replica: UUID, lease: timedelta) -> None:
    """Begin to live."""
    await connection.execute(insert(replicas).values(id=replica, expires_at=func.now() + literal(lease)))


async def renew(connection: Connection, replica: UUID, lease: timedelta) -> bool:
    """Live on; False when this replica was marked dead or removed."""
    statement = (
        update(replicas)
        .where(_row.id == replica, ~_row.dead)
        .values(expires_at=func.now() + literal(lease))
        .returning(_row.id)
    )
    return await connection.scalar(statement) is not None


async def mark_expired(connection: Connection, lease: timedelta) -> list[UUID]:
    """Mark every replica dead whose time is over, and tell which. After this commits, none of them can accept.

    A database that has not been up for a whole lease marks none: its replicas had no chance to renew.
    """
    up_long = func.now() - func.pg_postmaster_start_time() >= literal(lease)
    overdue = select(_row.id).where(~_row.dead, _row.expires_at < func.now(), up_long).with_for_update(skip_locked=True)
    statement = update(replicas).where(_row.id.in_(overdue)).values(dead=True).returning(_row.id)
    return list((await connection.scalars(statement)).all())


async def leave(connection: Connection, replica: UUID) -> None:
    """Stop living: what this replica still runs may be taken over at once."""
    await connection.execute(update(replicas).where(_row.id == replica).values(dead=True))


async def orphans(connection: Connection, limit: int, *, besides: Collection[UUID] = ()) -> list[tuple[UUID, UUID]]:
    """Give (conversation, operation) of operations whose replica is marked dead or unknown, `besides` left out."""
    running = conversations.c
    alive = select(_row.id).where(_row.id == running.running_replica, ~_row.dead).exists()
    query = select(running.id, running.running_operation).where(running.running_operation.is_not(None), ~alive)
    if besides:
        query = query.where(running.running_operation.not_in(besides))
    rows = await connection.execute(query.limit(limit))
    return [(row.id, row.running_operation) for row in rows]


_END_STUCK: Final = text("""
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
    AND state = 'active' AND wait_event = 'ClientRead' AND state_change < now() - make_interval(secs => :seconds)
""")


async def end_stuck(connection: Connection, seconds: float) -> int:
    """End sessions of this role that have waited so long for the rest of a statement, and tell how many.

    A process that is frozen between preparing a statement and executing it holds its locks, and no timeout of Postgres
    15 or 16 sees that; from 17 on `transaction_timeout` does. A process that lives sends the rest at once.
    """
    return int(await connection.scalar(_END_STUCK, {"seconds": seconds}) or 0)


async def forget_dead(connection: Connection) -> None:
    """Remove rows of dead replicas that nothing refers to any more."""
    running = conversations.c
    used = select(running.id).where(running.running_replica == _row.id).exists()
    long_gone = func.now() - literal(timedelta(hours=1))
    await connection.execute(replicas.delete().where(_row.dead, _row.expires_at < long_gone, ~used))
