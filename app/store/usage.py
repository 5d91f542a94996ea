"""The usage ledger: a row for each attempt at a model request, also for those that failed or were given up.

A row is named by its operation's fence and a number, and never changes, so writing it again does nothing. The rows of
a conversation go with it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import select

from app.domain.frozen import dataclass
from app.domain.jsontext import dumps_text
from app.domain.usage import ModelCall, Usage
from app.store.database import Connection
from app.store.sql import Statement
from app.store.tables import usage_ledger

_row = usage_ledger.c
_COUNTS: Final = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")


def appending(condition: str = "true") -> str:
    """Give the statement that keeps an operation's calls, if the condition holds; those that are there stay."""
    return f"""
INSERT INTO usage_ledger (
    conversation, fence, n, stream_id, turn_id, purpose, step, hop, attempt, provider, model, outcome, reason, status,
    prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, estimated, cost, first_output_seconds, seconds
)
SELECT :conversation::uuid, :fence::bigint, call.n, :stream_id::text, :turn_id::text, call.purpose, call.step, call.hop,
    call.attempt, call.provider, call.model, call.outcome, call.reason, call.status, call.prompt_tokens,
    call.completion_tokens, call.cached_tokens, call.reasoning_tokens, call.estimated, call.cost,
    call.first_output_seconds, call.seconds
FROM json_to_recordset(:calls::json) AS call(
    n integer, purpose text, step integer, hop integer, attempt integer, provider text, model text, outcome text,
    reason text, status integer, prompt_tokens bigint, completion_tokens bigint, cached_tokens bigint,
    reasoning_tokens bigint, estimated boolean, cost double precision, first_output_seconds double precision,
    seconds double precision
)
WHERE EXISTS (SELECT FROM conversations WHERE id = :conversation::uuid) AND {condition}
ON CONFLICT DO NOTHING
"""  # noqa: S608 - put together of constants


_APPEND: Final = Statement(appending())


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One row: the attempt, where it belongs, and when it was written."""

    stream_id: str
    turn_id: str
    call: ModelCall
    created_at: datetime


async def append(
    connection: Connection,
    conversation: UUID,
    *,
    fence: int,
    stream_id: str,
    turn_id: str,
    calls: Sequence[ModelCall],
) -> None:
    """Keep the calls of the operation that holds (or held) the fence, all that it has made so far, in their order.

    Nothing is kept of a conversation that has been erased.
    """
    if calls:
        named = {"conversation": conversation, "fence": fence, "stream_id": stream_id, "turn_id": turn_id}
        await _APPEND.rows(connection, {**named, "calls": values(calls)})


def values(calls: Sequence[ModelCall]) -> str:
    """Give the value `calls` of `appending`."""
    return dumps_text([{"n": n, **_values(call)} for n, call in enumerate(calls, start=1)])


async def of_stream(connection: Connection, conversation: UUID, stream_id: str) -> list[LedgerEntry]:
    """Give what was kept of a stream, in order."""
    query = select(usage_ledger).where(_row.conversation == conversation, _row.stream_id == stream_id)
    found = await connection.execute(query.order_by(_row.fence, _row.n))
    return [_entry(row._asdict()) for row in found]


async def of_conversation(connection: Connection, conversation: UUID) -> list[LedgerEntry]:
    """Give what was kept of a conversation, in order."""
    query = select(usage_ledger).where(_row.conversation == conversation).order_by(_row.fence, _row.n)
    return [_entry(row._asdict()) for row in await connection.execute(query)]


def _values(call: ModelCall) -> dict[str, Any]:
    values = {name: getattr(call, name) for name in ModelCall.__slots__ if name != "usage"}
    return values | {name: getattr(call.usage, name) for name in _COUNTS}


def _entry(values: dict[str, Any]) -> LedgerEntry:
    usage = Usage(**{name: values.pop(name) for name in _COUNTS})
    names = {name: values[name] for name in ModelCall.__slots__ if name != "usage"}
    return LedgerEntry(values["stream_id"], values["turn_id"], ModelCall(usage=usage, **names), values["created_at"])
