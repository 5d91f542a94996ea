"""Pauses: the pending external-tool requests. Each change names the state it saw, and follows `domain.pause`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, Select, bindparam, func, insert, literal, select, tuple_, update

from app.domain.messages import ToolCall
from app.domain.pause import PauseEvent, PauseState, advance
from app.domain.tools import ToolResult
from app.domain.turn import Caller, OnExpiry, Pause
from app.store.database import Connection
from app.store.tables import pauses

_row = pauses.c


@dataclass(frozen=True, slots=True)
class PauseRecord:
    """A pause as it is stored. `results` are the partial results that came so far.

    A new pause names its `ttl_seconds`; its end is counted from when it is stored, in database time.
    """

    conversation: UUID
    pause_id: str
    organization_id: str
    conversation_id: str
    user_id: str
    session_id: str
    persona_id: str
    stream_id: str
    turn_id: str
    fence: int
    state: PauseState
    end_reason: str | None
    calls: tuple[ToolCall, ...]
    results: tuple[ToolResult, ...]
    rationale: str | None
    snapshot: Mapping[str, Any] | None
    requested_at: datetime
    expires_at: datetime | None = None
    on_expiry: OnExpiry = "close"
    ttl_seconds: float | None = None

    def public(self) -> Pause:
        """Give the form that a host reads."""
        return Pause(
            pause_id=self.pause_id,
            stream_id=self.stream_id,
            conversation_id=self.conversation_id,
            session_id=self.session_id,
            user_id=self.user_id,
            persona_id=self.persona_id,
            turn_id=self.turn_id,
            tool_calls=tuple(call.asked() for call in self.calls),
            rationale=self.rationale,
            requested_at=iso(self.requested_at),
            expires_at=iso(self.expires_at) if self.expires_at else None,
            received=tuple(result.tool_call_id for result in self.results),
        )


def iso(moment: datetime) -> str:
    """Give a time as clients read it."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_COLUMNS = (
    _row.conversation,
    _row.pause_id,
    _row.organization_id,
    _row.conversation_id,
    _row.user_id,
    _row.session_id,
    _row.persona_id,
    _row.stream_id,
    _row.turn_id,
    _row.fence,
    _row.state,
    _row.end_reason,
    _row.tool_calls,
    _row.results,
    _row.rationale,
    _row.snapshot,
    _row.requested_at,
    _row.expires_at,
    _row.on_expiry,
)


def _record(row: Row[*tuple[Any, ...]]) -> PauseRecord:
    values = row._asdict()
    values["state"] = PauseState(values["state"])
    values["calls"] = tuple(ToolCall.from_json(call) for call in values.pop("tool_calls"))
    values["results"] = tuple(ToolResult.from_json(result) for result in values["results"])
    return PauseRecord(**values)


def _pauses(conversation: UUID) -> Select[Any]:
    return select(*_COLUMNS).where(_row.conversation == conversation)


_HELD: Final = select(*_COLUMNS).where(_row.conversation == bindparam("of"), _row.state == PauseState.HELD.value)
_HELD_LOCKED: Final = _HELD.with_for_update()


async def held(connection: Connection, conversation: UUID, *, for_update: bool = False) -> PauseRecord | None:
    """Give the pause that the conversation holds."""
    statement = _HELD_LOCKED if for_update else _HELD
    found = (await connection.execute(statement, {"of": conversation})).first()
    return _record(found) if found is not None else None


async def find(
    connection: Connection, conversation: UUID, pause_id: str, *, for_update: bool = False
) -> PauseRecord | None:
    """Give one pause, whatever its state."""
    query = _pauses(conversation).where(_row.pause_id == pause_id)
    found = (await connection.execute(query.with_for_update() if for_update else query)).first()
    return _record(found) if found is not None else None


async def hold(connection: Connection, pause: PauseRecord) -> None:
    """Store a new pause, held."""
    values: dict[str, Any] = {column.name: None for column in _COLUMNS}
    values |= {name: getattr(pause, name) for name in pause.__slots__ if name in values}
    values["state"] = pause.state.value
    values["tool_calls"] = [call.to_json() for call in pause.calls]
    values["results"] = [result.to_json() for result in pause.results]
    values["snapshot"] = dict(pause.snapshot) if pause.snapshot else None
    values["requested_at"] = func.now()
    if pause.ttl_seconds is not None:
        values["expires_at"] = func.now() + literal(timedelta(seconds=pause.ttl_seconds))
    await connection.execute(insert(pauses).values(**values))


async def move(
    connection: Connection,
    pause: PauseRecord,
    event: PauseEvent,
    *,
    reason: str | None = None,
    results: Sequence[ToolResult] | None = None,
) -> bool:
    """Change the pause's state; False when it is no longer in the state that `pause` saw.

    A pause that is over keeps its calls and the reason, and loses its snapshot.
    """
    state = advance(pause.state, event)
    changes: dict[str, Any] = {"state": state.value}
    if results is not None:
        changes["results"] = [result.to_json() for result in results]
    if reason is not None:
        changes["end_reason"] = reason
    if state is PauseState.ENDED:
        changes |= {"resolved_at": func.now(), "snapshot": None}
    statement = (
        update(pauses)
        .where(_row.conversation == pause.conversation, _row.pause_id == pause.pause_id)
        .where(_row.state == pause.state.value)
        .values(**changes)
        .returning(_row.pause_id)
    )
    return await connection.scalar(statement) is not None


async def keep_partial(connection: Connection, pause: PauseRecord, results: Sequence[ToolResult]) -> None:
    """Store partial results with a held pause, which the caller has locked."""
    await connection.execute(
        update(pauses)
        .where(_row.conversation == pause.conversation, _row.pause_id == pause.pause_id)
        .values(results=[result.to_json() for result in results])
    )


async def expired(connection: Connection, limit: int) -> list[tuple[UUID, str]]:
    """Give (conversation, pause) of held pauses whose time is over, the oldest first."""
    query = (
        select(_row.conversation, _row.pause_id)
        .where(_row.state == PauseState.HELD.value, _row.expires_at < func.now())
        .order_by(_row.expires_at)
        .limit(limit)
    )
    return [(row.conversation, row.pause_id) for row in await connection.execute(query)]


async def waiting(
    connection: Connection, caller: Caller, *, after: tuple[datetime, str] | None, limit: int
) -> list[PauseRecord]:
    """Give the pauses that wait for the caller, the oldest first, from behind `after` on."""
    query = select(*_COLUMNS).where(
        _row.organization_id == caller.organization_id,
        _row.user_id == caller.user_id,
        _row.state == PauseState.HELD.value,
    )
    if after is not None:
        query = query.where(tuple_(_row.requested_at, _row.pause_id) > after)
    rows = await connection.execute(query.order_by(_row.requested_at, _row.pause_id).limit(limit))
    return [_record(row) for row in rows]
