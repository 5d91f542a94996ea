"""Windows of task outcomes: one row for each scope, which every process adds to."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import bindparam, select, update
from sqlalchemy.dialects.postgresql import insert

from app.store.database import Connection
from app.store.tables import task_outcome_windows

_row = task_outcome_windows.c
_FIND: Final = select(_row.samples).where(_row.scope_key == bindparam("scope"))
_MAKE: Final = insert(task_outcome_windows)
_LOCK: Final = _MAKE.on_conflict_do_update(
    index_elements=["scope_key"], set_={"scope_key": _MAKE.excluded.scope_key}
).returning(_row.samples)
_WRITE: Final = (
    update(task_outcome_windows).where(_row.scope_key == bindparam("scope")).values(samples=bindparam("new"))
)


async def find(connection: Connection, scope: str) -> list[Any]:
    """Give the samples of a scope, as they are stored."""
    return list(await connection.scalar(_FIND, {"scope": scope}) or ())


async def add(connection: Connection, scope: str, new: Sequence[dict[str, Any]], *, most: int) -> list[Any]:
    """Add samples to a scope's window, of which the newest `most` stay, and give it."""
    kept = await connection.scalar(_LOCK, {"scope_key": scope}) or []
    samples = sorted([*kept, *new], key=lambda sample: str(sample.get("at")))[-most:]
    await connection.execute(_WRITE, {"scope": scope, "new": samples})
    return samples
