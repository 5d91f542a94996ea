"""What sessions change about their turns, in the row that a session has."""

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import ColumnElement, bindparam, func, select, update
from sqlalchemy.dialects.postgresql import insert

from app.domain.overrides import Overrides
from app.domain.session import SessionKey
from app.store.database import Connection
from app.store.tables import session_state

_row = session_state.c
_KEY: Final = ("organization_id", "user_id", "session_id")
_THIS: Final[list[ColumnElement[bool]]] = [_row[name] == bindparam(f"the_{name}") for name in _KEY]
_FIND: Final = select(_row.overrides).where(*_THIS)
_MAKE: Final = insert(session_state)
_LOCK: Final = _MAKE.on_conflict_do_update(index_elements=_KEY, set_={"updated_at": func.now()}).returning(
    _row.overrides
)
_WRITE: Final = update(session_state).where(*_THIS).values(overrides=bindparam("new"))


async def find(connection: Connection, key: SessionKey) -> Overrides:
    """Give the session's overrides; empty ones for a session of which nothing is kept."""
    return Overrides.from_json(await connection.scalar(_FIND, _named(key)))


async def change(connection: Connection, key: SessionKey, work: Callable[[Overrides], Overrides]) -> Overrides:
    """Change the session's overrides, which are locked until the transaction ends; what `work` raises changes none."""
    kept = Overrides.from_json(await connection.scalar(_LOCK, {name: getattr(key, name) for name in _KEY}))
    new = work(kept)
    await connection.execute(_WRITE, {**_named(key), "new": new.to_json()})
    return new


async def reset(connection: Connection, key: SessionKey) -> None:
    """Take the session's overrides back; of a session that nothing is kept of there are none."""
    await connection.execute(_WRITE, {**_named(key), "new": {}})


def _named(key: SessionKey) -> dict[str, Any]:
    return {f"the_{name}": getattr(key, name) for name in _KEY}
