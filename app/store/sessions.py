"""What sessions keep: their working memory, and their reasoning trace.

A session's row counts the entries of its trace, and whoever writes locks it. So two processes that serve one session
lose none of each other's entries, and positions grow in the order in which readers come to see them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from sqlalchemy import JSON, ColumnElement, Table, and_, cast, delete, func, literal, select, tuple_, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.dialects.postgresql import insert as upsert

from app.domain.frozen import dataclass
from app.domain.jsontext import dumps_text
from app.domain.session import SessionKey, SessionState, TraceEntry, merged
from app.domain.turn import Caller
from app.store.database import Connection
from app.store.sql import Statement, as_json
from app.store.tables import conversations, inbound_messages, reasoning_traces, session_state

_state = session_state.c
_entry = reasoning_traces.c
_KEY: Final = ("organization_id", "user_id", "session_id")
_SHOWN: Final = (_state.mood, _state.user_context, _state.task_context, _state.mind, _state.version)

_FIND: Final = Statement("""
SELECT mood, user_context, task_context, mind, version FROM session_state
WHERE organization_id = :organization_id::text AND user_id = :user_id::text AND session_id = :session_id::text
""")


def keeping(condition: str = "true") -> str:
    """Give the parts of a statement that append to a session's trace and change its working memory.

    Nothing is done without a trace, or if the condition does not hold. `counted.traced` is the number of the newest
    entry, which `trim` is to be told.
    """
    return f"""
counted AS (
INSERT INTO session_state (organization_id, user_id, session_id, traced, mood, user_context, task_context, mind)
SELECT :organization_id::text, :user_id::text, :session_id::text, json_array_length(:trace::json), :mood::text,
    coalesce(:user_context::json, '{{}}'), coalesce(:task_context::json, '{{}}'), coalesce(:mind::json, '{{}}')
WHERE :trace::json IS NOT NULL AND {condition}
ON CONFLICT (organization_id, user_id, session_id) DO UPDATE SET
    traced = session_state.traced + excluded.traced, updated_at = now(),
    mood = coalesce(:mood::text, session_state.mood),
    user_context = coalesce(:user_context::json, session_state.user_context),
    task_context = coalesce(:task_context::json, session_state.task_context),
    mind = CASE WHEN :mind::json IS NULL THEN session_state.mind
        ELSE (session_state.mind::jsonb || :mind::json::jsonb)::json END,
    version = session_state.version + :changed::boolean::int
RETURNING traced
), traced AS (
INSERT INTO reasoning_traces (
    organization_id, user_id, session_id, position, conversation, conversation_id, stream_id, turn_id, persona_id,
    at, type, message, related_id, details
)
SELECT :organization_id::text, :user_id::text, :session_id::text,
    counted.traced - json_array_length(:trace::json) + entry.n, :conversation::uuid, :conversation_name::text,
    :stream_id::text, :turn_id::text, :persona_id::text,
    entry.at, entry.type, entry.message, entry.related_id, entry.details
FROM counted, json_to_recordset(:trace::json) AS entry(
    n integer, at timestamptz, type text, message text, related_id text, details json
)
)
"""  # noqa: S608 - put together of constants


_KEEP: Final = Statement(f"WITH {keeping()} SELECT traced FROM counted")  # noqa: S608 - put together of constants


@dataclass(frozen=True, slots=True)
class TraceOrigin:
    """The operation that entries come from."""

    conversation: UUID
    conversation_id: str
    stream_id: str
    turn_id: str
    persona_id: str


@dataclass(frozen=True, slots=True)
class Kept:
    """What an operation leaves in its session: entries of the trace, of which the last `most` stay, and changes."""

    key: SessionKey
    conversation_id: str
    persona_id: str
    entries: tuple[TraceEntry, ...]
    most: int
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """An entry as it is stored. Positions grow; a gap is where a conversation was erased."""

    position: int
    entry: TraceEntry
    origin: TraceOrigin


async def find(connection: Connection, key: SessionKey) -> SessionState:
    """Give what the session keeps; version 0 says that there is nothing."""
    row = await _FIND.first(connection, _named(key))
    return state_of(None if row is None else dict(row))


async def hold(connection: Connection, key: SessionKey) -> SessionState:
    """Give what the session keeps, and let nobody else change it until the transaction ends; its row is made."""
    made = upsert(session_state).values(**_named(key))
    locked = made.on_conflict_do_update(index_elements=_KEY, set_={"version": _state.version + 1}).returning(*_SHOWN)
    return _read((await connection.execute(locked)).one())


async def merge_user_context(connection: Connection, key: SessionKey, given: Mapping[str, Any]) -> SessionState:
    """Merge a turn's user context over the kept one and give what is kept now. TooLargeError when that is too much."""
    state = await hold(connection, key)
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
        .values(**_merging(changes), version=_state.version + 1, updated_at=func.now())
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

    The transaction holds the operation's conversation. Of the working memory, the last writer's word counts; of
    the mind, part by part.
    """
    about = {"conversation": origin.conversation, "stream_id": origin.stream_id, "turn_id": origin.turn_id}
    kept = Kept(key, origin.conversation_id, origin.persona_id, tuple(entries), most, changes or {})
    row = await _KEEP.first(connection, {**about, **values(kept)})
    await trim(connection, kept, row["traced"])


async def trim(connection: Connection, kept: Kept, last: int) -> None:
    """Let entries go that are too old now; a statement of its own sees what was appended while the other one waited."""
    if last > kept.most:
        old = _entry.position <= last - kept.most
        await connection.execute(delete(reasoning_traces).where(_is(reasoning_traces, kept.key), old))


def values(kept: Kept | None) -> dict[str, Any]:
    """Give the values of `keeping`; nothing is kept of None."""
    key = kept.key if kept else SessionKey("", "", "")
    changes = kept.changes if kept else {}
    return {
        "organization_id": key.organization_id,
        "user_id": key.user_id,
        "session_id": key.session_id,
        "conversation_name": kept.conversation_id if kept else "",
        "persona_id": kept.persona_id if kept else "",
        "trace": None if kept is None else dumps_text([_told(n, entry) for n, entry in enumerate(kept.entries, 1)]),
        "most": kept.most if kept else 0,
        "changed": bool(changes),
        "mood": changes.get("mood"),
        "user_context": as_json(changes.get("user_context")),
        "task_context": as_json(changes.get("task_context")),
        "mind": as_json(changes.get("mind")),
    }


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


def _merging(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Give the values to set: parts of the mind go over those that are there, and leave the others alone."""
    if "mind" not in changes:
        return dict(changes)
    parts = cast(_state.mind, JSONB).op("||")(cast(literal(changes["mind"], JSON), JSONB))
    return {**changes, "mind": cast(parts, JSON)}


async def forget_user(connection: Connection, caller: Caller) -> None:
    """Erase what all sessions of a user keep; the user has no conversation any more."""
    for table in (reasoning_traces, session_state):
        mine = and_(table.c.organization_id == caller.organization_id, table.c.user_id == caller.user_id)
        await connection.execute(delete(table).where(mine))


def _is(table: Table, key: SessionKey) -> ColumnElement[bool]:
    return and_(*(table.c[name] == value for name, value in _named(key).items()))


def _named(key: SessionKey) -> dict[str, Any]:
    return {name: getattr(key, name) for name in _KEY}


def state_of(stored: Mapping[str, Any] | None) -> SessionState:
    """Give the working memory of a row; version 0 where there is none."""
    return SessionState(**{**stored, "mood": stored["mood"] or ""}) if stored else SessionState()


def _read(row: Any) -> SessionState:
    return SessionState(row.mood or "", row.user_context, row.task_context, row.mind, row.version)


def _told(n: int, entry: TraceEntry) -> dict[str, Any]:
    details = dict(entry.details) if entry.details is not None else None
    told = {"type": entry.type, "message": entry.message, "related_id": entry.related_id, "details": details}
    return {"n": n, "at": entry.at.isoformat(), **told}


def _record(values: Mapping[str, Any]) -> TraceRecord:
    entry = TraceEntry(**{name: values[name] for name in TraceEntry.__slots__})
    origin = TraceOrigin(**{name: values[name] for name in TraceOrigin.__slots__})
    return TraceRecord(values["position"], entry, origin)
