"""Memory traces: what is remembered, in whose scope, and how alive it is."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    and_,
    bindparam,
    cast,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import REGCONFIG, TSQUERY

from app.domain.frozen import dataclass
from app.domain.memory import MemoryScope, MemoryType
from app.domain.turn import Caller
from app.store.database import Connection
from app.store.passages import Vector, any_of
from app.store.tables import conversations, memory_traces

_row = memory_traces.c
CONFIGURATION: Final = literal("english", REGCONFIG)
"""How words are read, in any language: text and query in the same way, and what says nothing in English left out."""


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """A trace as it is stored."""

    organization_id: str
    trace_id: str
    user_id: str
    scope: MemoryScope
    scope_id: str
    conversation: UUID
    conversation_id: str
    persona_id: str
    type: MemoryType
    source: str
    category: str | None
    content: str
    valence: float
    confidence: float
    strength: float
    stability: float
    intensity: float
    importance: float
    recalled: int
    links: Mapping[str, float]
    created_at: datetime
    accessed_at: datetime


@dataclass(frozen=True, slots=True)
class Near:
    """A trace that may fit: the words that it shares with what is looked for, and how near its vector is, if told."""

    record: TraceRecord
    held: frozenset[str] = frozenset()
    similarity: float = 0.0


@dataclass(frozen=True, slots=True)
class Faint:
    """What is forgotten: traces not told for as long as `keep` that are below all three, strength as it is now."""

    keep: timedelta
    strength: float = 0.05
    intensity: float = 0.3
    importance: float = 0.9


Scopes = Sequence[tuple[MemoryScope, str]]


async def add(
    connection: Connection, record: TraceRecord, *, model: str | None, vector: Sequence[float] | None
) -> None:
    """Keep a trace."""
    values = {name: getattr(record, name) for name in TraceRecord.__slots__}
    await connection.execute(
        insert(memory_traces).values(
            **values,
            words=func.to_tsvector(CONFIGURATION, record.content),
            embedding_model=model,
            embedding=None if vector is None else list(vector),
        )
    )


async def hold(connection: Connection, conversation: UUID) -> bool:
    """Hold a conversation until the transaction ends, so that it is not erased meanwhile; False when it was."""
    query = (
        select(conversations.c.id).where(conversations.c.id == conversation).with_for_update(read=True, key_share=True)
    )
    return await connection.scalar(query) is not None


async def models(connection: Connection, organization_id: str, scopes: Scopes) -> list[str | None]:
    """Tell how the traces of the scopes are embedded; an empty list says that there are none."""
    query = select(_row.embedding_model).where(_in(organization_id, scopes)).distinct()
    return list(await connection.scalars(query))


async def words_of(connection: Connection, text: str) -> list[str]:
    """Give the words of a text as traces have them."""
    return list(await connection.scalar(select(func.tsvector_to_array(func.to_tsvector(CONFIGURATION, text)))) or [])


async def by_words(
    connection: Connection, organization_id: str, scopes: Scopes, words: Sequence[str], limit: int
) -> list[Near]:
    """Give traces that hold at least one of the words."""
    asked = cast(literal(any_of(words)), TSQUERY)
    query = (
        _records(func.tsvector_to_array(_row.words).label("held"))
        .where(_in(organization_id, scopes), _row.words.op("@@")(asked))
        .order_by(func.ts_rank(_row.words, asked).desc(), _row.created_at.desc())
        .limit(limit)
    )
    return [Near(_record(row), held=frozenset(row.held)) for row in await connection.execute(query)]


async def by_meaning(
    connection: Connection, organization_id: str, scopes: Scopes, vector: Sequence[float], *, model: str, limit: int
) -> list[Near]:
    """Give the traces whose vectors of that model are nearest."""
    kind = Vector(len(vector))
    distance = cast(_row.embedding, kind).op("<=>")(cast(literal(list(vector), _row.embedding.type), kind))
    query = (
        _records(distance.label("distance"))
        .where(_in(organization_id, scopes), _row.embedding_model == model)
        .order_by(distance)
        .limit(limit)
    )
    return [Near(_record(row), similarity=1 - float(row.distance)) for row in await connection.execute(query)]


async def newest(connection: Connection, organization_id: str, scopes: Scopes, limit: int) -> list[Near]:
    """Give the newest traces of the scopes."""
    query = _records().where(_in(organization_id, scopes)).order_by(_row.created_at.desc(), _row.trace_id).limit(limit)
    return [Near(_record(row)) for row in await connection.execute(query)]


async def some(connection: Connection, organization_id: str, trace_ids: Sequence[str]) -> list[TraceRecord]:
    """Give those of the traces that there still are."""
    query = _records().where(_row.organization_id == organization_id, _row.trace_id.in_(trace_ids))
    return [_record(row) for row in await connection.execute(query.order_by(_row.trace_id))]


async def revive(connection: Connection, organization_id: str, changed: Sequence[Mapping[str, Any]]) -> None:
    """Store how alive traces are: of each its `trace_id`, the five values of its vitality, and its links."""
    if not changed:
        return
    names = ("strength", "stability", "intensity", "recalled", "accessed_at", "links")
    statement = (
        update(memory_traces)
        .where(_row.organization_id == organization_id, _row.trace_id == bindparam("_trace"))
        .values({name: bindparam(f"_{name}", type_=_row[name].type) for name in names})
    )
    # In one order, so that two who revive the same traces wait for each other and no more.
    for entry in sorted(changed, key=lambda values: str(values["trace_id"])):
        await connection.execute(
            statement, {"_trace": entry["trace_id"], **{f"_{name}": entry[name] for name in names}}
        )


async def bound(connection: Connection, organization_id: str, scope: tuple[MemoryScope, str], most: int) -> None:
    """Forget the faintest traces of a scope that has more than it may."""
    too_many = select(_row.trace_id).where(_in(organization_id, [scope])).order_by(_left().desc()).offset(most)
    await connection.execute(
        delete(memory_traces).where(_row.organization_id == organization_id, _row.trace_id.in_(too_many))
    )


async def fade(connection: Connection, faint: Faint, *, limit: int) -> int:
    """Forget traces that have faded; tells how many. What another process is at is left alone."""
    faded = (
        select(_row.organization_id, _row.trace_id)
        .where(
            _row.accessed_at < func.now() - literal(faint.keep),
            _left() < faint.strength,
            _row.intensity < faint.intensity,
            _row.importance < faint.importance,
        )
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte("faded")  # a plan may run a subquery again for each row, and then its limit is none
    )
    mine = tuple_(_row.organization_id, _row.trace_id).in_(select(faded.c.organization_id, faded.c.trace_id))
    statement = delete(memory_traces).where(mine)
    return len((await connection.scalars(statement.returning(_row.trace_id))).all())


async def page(
    connection: Connection, caller: Caller, *, before: tuple[datetime, str] | None, limit: int
) -> list[TraceRecord]:
    """Give the caller's traces, the newest first."""
    query = _records().where(_own(caller))
    if before is not None:
        query = query.where(tuple_(_row.created_at, _row.trace_id) <= before)
    rows = await connection.execute(query.order_by(_row.created_at.desc(), _row.trace_id.desc()).limit(limit))
    return [_record(row) for row in rows]


async def remove(connection: Connection, caller: Caller, trace_id: str | None = None) -> int:
    """Erase one of the caller's traces, or all of them; tells how many there were."""
    statement = delete(memory_traces).where(_own(caller))
    if trace_id is not None:
        statement = statement.where(_row.trace_id == trace_id)
    return len((await connection.scalars(statement.returning(_row.trace_id))).all())


async def forget(connection: Connection, conversation: UUID) -> None:
    """Erase what was remembered of a conversation, which the transaction holds."""
    await connection.execute(delete(memory_traces).where(_row.conversation == conversation))


def _left() -> ColumnElement[float]:
    """Give the strength that is left of a trace."""
    age = func.extract("epoch", func.now() - _row.accessed_at)
    return _row.strength * func.exp(-func.least(age / _row.stability, 500))


def _own(caller: Caller) -> ColumnElement[bool]:
    return and_(_row.organization_id == caller.organization_id, _row.user_id == caller.user_id)


def _in(organization_id: str, scopes: Scopes) -> ColumnElement[bool]:
    return and_(
        _row.organization_id == organization_id,
        or_(*(and_(_row.scope == scope, _row.scope_id == name) for scope, name in scopes)),
    )


def _records(*further: ColumnElement[Any]) -> Select[Any]:
    return select(*(_row[name] for name in TraceRecord.__slots__), *further)


def _record(row: Row[Any]) -> TraceRecord:
    return TraceRecord(**{name: getattr(row, name) for name in TraceRecord.__slots__})
