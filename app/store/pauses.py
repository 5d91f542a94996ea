"""Pauses: the pending external-tool requests. Each change names the state it saw, and follows `domain.pause`."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import func, select, tuple_, update

from app.domain.frozen import dataclass
from app.domain.jsontext import dumps_text
from app.domain.messages import ToolCall
from app.domain.pause import PauseEvent, PauseState, advance
from app.domain.tools import ToolResult
from app.domain.turn import Caller, OnExpiry, Pause
from app.store.database import Connection
from app.store.sql import Statement, as_json
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
        answered = {result.tool_call_id for result in self.results}
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
            received=tuple(call.id for call in self.calls if call.id in answered),
        )


def iso(moment: datetime) -> str:
    """Give a time as clients read it."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_NAMES: Final = (
    "conversation, pause_id, organization_id, conversation_id, user_id, session_id, persona_id, stream_id, turn_id,"
    " fence, state, end_reason, tool_calls, results, rationale, snapshot, requested_at, expires_at, on_expiry"
)
_COLUMNS: Final = tuple(_row[name] for name in _NAMES.split(", "))
_SELECT: Final = f"""
SELECT {_NAMES} FROM pending_external_tool_requests WHERE conversation = :conversation::uuid AND
"""  # noqa: S608 - put together of constants
_HELD: Final = Statement(f"{_SELECT} state = 'held'")
_HELD_LOCKED: Final = Statement(f"{_SELECT} state = 'held' FOR UPDATE")
_FIND: Final = Statement(f"{_SELECT} pause_id = :pause_id::text")
_FIND_LOCKED: Final = Statement(f"{_SELECT} pause_id = :pause_id::text FOR UPDATE")
_HOLD: Final = Statement("""
INSERT INTO pending_external_tool_requests (
    conversation, pause_id, organization_id, conversation_id, user_id, session_id, persona_id, stream_id, turn_id,
    fence, state, end_reason, tool_calls, results, rationale, snapshot, requested_at, expires_at, on_expiry
)
VALUES (
    :conversation::uuid, :pause_id::text, :organization_id::text, :conversation_id::text, :user_id::text,
    :session_id::text, :persona_id::text, :stream_id::text, :turn_id::text, :fence::bigint, :state::text,
    :end_reason::text, :calls::json, :results::json, :rationale::text, :snapshot::json,
    now(), now() + :ttl_seconds::double precision * interval '1 second', :on_expiry::text
)
""")
_MOVE: Final = Statement("""
UPDATE pending_external_tool_requests SET
    state = :state::text,
    results = coalesce(:results::json, results),
    end_reason = coalesce(:reason::text, end_reason),
    resolved_at = CASE WHEN :over::boolean THEN now() ELSE resolved_at END,
    snapshot = CASE WHEN :over::boolean THEN NULL ELSE snapshot END
WHERE conversation = :conversation::uuid AND pause_id = :pause_id::text AND state = :seen::text
RETURNING pause_id
""")


def _record(row: Any) -> PauseRecord:
    values = dict(row)
    values["state"] = PauseState(values["state"])
    values["calls"] = tuple(ToolCall.from_json(call) for call in values.pop("tool_calls"))
    values["results"] = tuple(ToolResult.from_json(result) for result in values["results"])
    return PauseRecord(**values)


async def held(connection: Connection, conversation: UUID, *, for_update: bool = False) -> PauseRecord | None:
    """Give the pause that the conversation holds."""
    found = await (_HELD_LOCKED if for_update else _HELD).first(connection, {"conversation": conversation})
    return _record(found) if found is not None else None


async def find(
    connection: Connection, conversation: UUID, pause_id: str, *, for_update: bool = False
) -> PauseRecord | None:
    """Give one pause, whatever its state."""
    named = {"conversation": conversation, "pause_id": pause_id}
    found = await (_FIND_LOCKED if for_update else _FIND).first(connection, named)
    return _record(found) if found is not None else None


async def hold(connection: Connection, pause: PauseRecord) -> None:
    """Store a new pause, held."""
    values = {name: getattr(pause, name) for name in pause.__slots__}
    values["state"] = pause.state.value
    values["calls"] = dumps_text([call.to_json() for call in pause.calls])
    values["results"] = dumps_text([result.to_json() for result in pause.results])
    values["snapshot"] = as_json(dict(pause.snapshot) if pause.snapshot else None)
    await _HOLD.first(connection, values)


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
    return await move_from(
        connection, pause.conversation, pause.pause_id, pause.state, event, reason=reason, results=results
    )


async def move_from(
    connection: Connection,
    conversation: UUID,
    pause_id: str,
    seen: PauseState,
    event: PauseEvent,
    *,
    reason: str | None = None,
    results: Sequence[ToolResult] | None = None,
) -> bool:
    """Change the state of a pause that is in the state `seen`, as `move` does; False when it is in another."""
    state = advance(seen, event)
    values = {
        "conversation": conversation,
        "pause_id": pause_id,
        "seen": seen.value,
        "state": state.value,
        "results": None if results is None else dumps_text([result.to_json() for result in results]),
        "reason": reason,
        "over": state is PauseState.ENDED,
    }
    return await _MOVE.first(connection, values) is not None


async def keep_partial(connection: Connection, pause: PauseRecord, results: Sequence[ToolResult]) -> None:
    """Store partial results with a held pause, which the caller has locked."""
    await connection.execute(
        update(pauses)
        .where(_row.conversation == pause.conversation, _row.pause_id == pause.pause_id)
        .values(results=[result.to_json() for result in results])
    )


async def expired(connection: Connection, limit: int, *, besides: Collection[str] = ()) -> list[tuple[UUID, str]]:
    """Give (conversation, pause) of held pauses whose time is over, the oldest first, `besides` left out."""
    query = (
        select(_row.conversation, _row.pause_id)
        .where(_row.state == PauseState.HELD.value, _row.expires_at < func.now())
        .order_by(_row.expires_at)
        .limit(limit)
    )
    if besides:
        query = query.where(_row.pause_id.not_in(besides))
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
    return [_record(row) for row in rows.mappings()]
