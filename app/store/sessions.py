"""What sessions keep: their working memory, and their reasoning trace.

A session's row counts the entries of its trace, and whoever writes locks it. So two processes that serve one session
lose none of each other's entries, and positions grow in the order in which readers come to see them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Table, and_, delete, func, insert, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as upsert

from app.domain.session import FIRST_MOOD, SessionKey, SessionState, TraceEntry, merged
from app.store.database import Connection
from app.store.tables import conversations, inbound_messages, reasoning_traces, session_state

_state = session_state.c
_entry = reasoning_traces.c
_KEY: Final = ("organization_id", "user_id", "session_id")
_SHOWN: Final = (_state.mood, _state.user_context, _state.task_context, _state.version)
_APPEND: Final = insert(reasoning_traces)


@dataclass(frozen=True, slots=True)
class TraceOrigin:
    """The operation that entries come from."""

    conversation: UUID
    conversation_id: str
    stream_id: str
    turn_id: str
    persona_id: str


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """An entry as it is stored. Positions grow; a gap is where a conversation was erased."""

    position: int
    entry: TraceEntry
    origin: TraceOrigin


async def find(connection: Connection, key: SessionKey) -> SessionState:
    """Give what the session keeps; version 0 says that there is nothing."""
    row = (await connection.execute(select(*_SHOWN).where(_is(session_state, key)))).first()
    return SessionState() if row is None else _read(row)


async def merge_user_context(connection: Connection, key: SessionKey, given: Mapping[str, Any]) -> SessionState:
    """Merge a turn's user context over the kept one and give what is kept now. TooLargeError when that is too much."""
    made = upsert(session_state).values(**_named(key))
    locked = made.on_conflict_do_update(index_elements=_KEY, set_={"version": _state.version + 1}).returning(*_SHOWN)
    state = _read((await connection.execute(locked)).one())
    context = merged(state.user_context, given)
    await connection.execute(
        update(session_state).where(_is(session_state, key)).values(user_context=context, updated_at=func.now())
    )
    return replace(state, user_context=context)


async def write(connection: Connection, key: SessionKey, changes: Mapping[str, Any], *, seen: int) -> bool:
    """Change parts of the working memory, for work behind an operation's end; False unless `seen` is its version."""
    statement = (
        update(session_state)
        .where(_is(session_state, key), _state.version == seen)
        .values(**changes, version=_state.version + 1, updated_at=func.now())
        .returning(_state.version)
    )
    return await connection.scalar(statement) is not None


async def keep(
    connection: Connection,
    key: SessionKey,
    origin: TraceOrigin,
    entries: Sequence[TraceEntry],
    *,
    most: int,
    changes: Mapping[str, Any] | None = None,
) -> None:
    """Append to the trace, of which the last `most` entries stay, and change parts of the working memory.

    The transaction holds the operation's conversation. Of the working memory, the last writer's word counts.
    """
    changed = {**changes, "version": _state.version + 1} if changes else {}
    made = upsert(session_state).values(**_named(key), **(changes or {}), traced=len(entries))
    counted = made.on_conflict_do_update(
        index_elements=_KEY, set_={"traced": _state.traced + len(entries), "updated_at": func.now(), **changed}
    ).returning(_state.traced)
    last = int(await connection.scalar(counted) or 0)
    first = last - len(entries) + 1
    rows = [{**_named(key), **_row(entry, origin), "position": place} for place, entry in enumerate(entries, first)]
    if rows:
        await connection.execute(_APPEND, rows)
    if last > most:
        await connection.execute(
            delete(reasoning_traces).where(_is(reasoning_traces, key), _entry.position <= last - most)
        )


async def trace_page(
    connection: Connection, key: SessionKey, *, after: int | None, limit: int, descending: bool
) -> list[TraceRecord]:
    """Give entries in order of position, from behind `after` on."""
    query = select(reasoning_traces).where(_is(reasoning_traces, key))
    if after is not None:
        query = query.where(_entry.position < after if descending else _entry.position > after)
    order = _entry.position.desc() if descending else _entry.position.asc()
    return [_record(row._asdict()) for row in await connection.execute(query.order_by(order).limit(limit))]


async def forget(connection: Connection, conversation: UUID) -> None:
    """Erase what sessions keep of a conversation, which the transaction holds, and which is still there.

    Its trace entries go. What else a session keeps goes with the last conversation that belonged to it, by its own
    word or by that of one of its turns.
    """
    owner = (
        await connection.execute(
            select(*(conversations.c[name] for name in _KEY)).where(conversations.c.id == conversation)
        )
    ).first()
    if owner is None:
        return
    # A turn may be of another session than its conversation is.
    named = inbound_messages.c.payload["session_id"].as_string()
    used = select(named).where(inbound_messages.c.conversation == conversation, named.is_not(None)).distinct()
    touched = {tuple(owner), *((*owner[:2], name) for name in await connection.scalars(used))}
    await connection.execute(delete(reasoning_traces).where(_entry.conversation == conversation))
    # Locked first and looked at by another statement, which sees what those have committed that held the lock.
    columns = [_state[name] for name in _KEY]
    mine = tuple_(*columns).in_(sorted(touched))
    await connection.execute(select(*columns).where(mine).order_by(*columns).with_for_update())
    others = select(conversations.c.id).where(
        *(conversations.c[name] == _state[name] for name in _KEY), conversations.c.id != conversation
    )
    traced = select(_entry.position).where(*(_entry[name] == _state[name] for name in _KEY))
    await connection.execute(delete(session_state).where(mine, ~others.exists(), ~traced.exists()))


def _is(table: Table, key: SessionKey) -> ColumnElement[bool]:
    return and_(*(table.c[name] == value for name, value in _named(key).items()))


def _named(key: SessionKey) -> dict[str, Any]:
    return {name: getattr(key, name) for name in _KEY}


def _read(row: Any) -> SessionState:
    return SessionState(row.mood or FIRST_MOOD, row.user_context, row.task_context, row.version)


def _row(entry: TraceEntry, origin: TraceOrigin) -> dict[str, Any]:
    about = {name: getattr(origin, name) for name in TraceOrigin.__slots__}
    details = dict(entry.details) if entry.details is not None else None
    return {
        **about,
        "at": entry.at,
        "type": entry.type,
        "message": entry.message,
        "related_id": entry.related_id,
        "details": details,
    }


def _record(values: Mapping[str, Any]) -> TraceRecord:
    entry = TraceEntry(**{name: values[name] for name in TraceEntry.__slots__})
    origin = TraceOrigin(**{name: values[name] for name in TraceOrigin.__slots__})
    return TraceRecord(values["position"], entry, origin)
