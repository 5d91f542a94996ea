"""What a turn starts from, read in one statement: its conversation's summary, its session, and the messages it tells.

With a summary the messages are another matter, and are left to `conversation.history`.
"""

from datetime import datetime
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from app.domain.frozen import dataclass
from app.domain.messages import NEVER_SENT, Entry
from app.domain.session import SessionKey, SessionState
from app.store import messages, sessions
from app.store.database import Connection
from app.store.sql import Statement
from app.store.summaries import SummaryRecord

_SENDABLE: Final = f"""
SELECT json_build_array({", ".join(messages.TOLD)}) AS told FROM messages
WHERE conversation = :conversation::uuid AND NOT not_sent AND role NOT IN ({", ".join(map(repr, sorted(NEVER_SENT)))})
    AND NOT EXISTS (SELECT FROM summary WHERE text <> '')
"""  # noqa: S608 - put together of constants
_WAYS: Final = 64
"""How many statements are kept: one for each pair of limits that personas and settings have."""


@lru_cache(_WAYS)
def _reading(oldest: int | None, newest: int) -> Statement:
    """Give the statement, with its limits written into it.

    With parameters a plan that is kept would count on a tenth of a conversation, and where conversations are long each
    turn would be planned anew, which takes longer than the reading.
    """
    first = "ALL" if oldest is None else oldest + 1  # one more, to tell whether a round goes on
    return Statement(f"""
WITH summary AS (
    SELECT conversation, version, text, memory, covers, message_count, head, at_limit, failures, failed, made_at
    FROM rolling_summaries WHERE conversation = :conversation::uuid
)
SELECT
    (SELECT to_json(summary) FROM summary) AS summary,
    (
        SELECT to_json(kept) FROM (
            SELECT mood, user_context, task_context, mind, version FROM session_state
            WHERE organization_id = :organization_id::text AND user_id = :user_id::text
                AND session_id = :session_id::text
        ) AS kept
    ) AS session,
    (SELECT json_agg(told) FROM ({_SENDABLE} ORDER BY position LIMIT {first}) AS found) AS oldest,
    (
        SELECT json_agg(told) FROM (
            {_SENDABLE} AND role = 'summary' ORDER BY position DESC LIMIT 1
        ) AS found
    ) AS summaries,
    (SELECT json_agg(told) FROM ({_SENDABLE} ORDER BY position DESC LIMIT {newest}) AS found) AS newest
""")  # noqa: S608 - put together of constants


@dataclass(frozen=True, slots=True)
class Start:
    """What a turn starts from. `edges` are the messages at both ends, None where a summary stands for some of them."""

    summary: SummaryRecord | None
    session: SessionState
    edges: tuple[Entry, ...] | None


async def read(
    connection: Connection, conversation: UUID, key: SessionKey, *, oldest: int | None, newest: int
) -> Start:
    """Read it; `oldest` and `newest` are how many messages of either end are wanted, None is all."""
    values = {
        "conversation": conversation,
        "organization_id": key.organization_id,
        "user_id": key.user_id,
        "session_id": key.session_id,
    }
    row = await _reading(oldest, newest).first(connection, values)
    summary, edges = row["summary"], None
    if not (summary and summary["text"]):
        first, last = _entries(row["oldest"]), _entries(row["newest"])[::-1]
        first = await messages.whole_at_end(connection, conversation, first, limit=oldest, and_next=True)
        last = await messages.whole_at_start(connection, conversation, last, limit=newest)
        edges = (*first, *_entries(row["summaries"]), *last)
    return Start(_summary(summary, conversation), sessions.state_of(row["session"]), edges)


def _entries(found: list[list[Any]] | None) -> list[Entry]:
    return [messages.entry_of(row) for row in found or ()]


def _summary(found: dict[str, Any] | None, conversation: UUID) -> SummaryRecord | None:
    if found is None:
        return None
    covers = tuple((first, last) for first, last in found["covers"])
    made_at = datetime.fromisoformat(found["made_at"]) if found["made_at"] else None
    return SummaryRecord(**{**found, "conversation": conversation, "covers": covers, "made_at": made_at})
