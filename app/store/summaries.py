"""Rolling summaries: one row for each conversation, with what it covers, and how often making it failed in a row.

A write names the version that its writer has read and the fence of its operation; whoever is too late writes nothing,
and nothing is lost by that: the messages are all still there, and the next pass takes them.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert

from app.domain.frozen import dataclass
from app.store.database import Connection
from app.store.tables import conversations, rolling_summaries

_row = rolling_summaries.c


@dataclass(frozen=True, slots=True)
class SummaryRecord:
    """A conversation's summary as it is stored. Version 0 has no text yet: only failures were counted.

    `covers` are spans of positions. `head` is how many first messages it was made to leave out; None when that was not
    recorded. `at_limit` tells that the conversation's limit made it, so that it belongs to the conversation whatever
    the settings say. `failed` is `{settings, upto, reason}` of the last failure.
    """

    conversation: UUID
    version: int = 0
    text: str = ""
    memory: Mapping[str, Any] | None = None
    covers: tuple[tuple[int, int], ...] = ()
    message_count: int = 0
    head: int | None = None
    at_limit: bool = False
    failures: int = 0
    failed: Mapping[str, Any] | None = None
    made_at: datetime | None = None


_COLUMNS: Final = tuple(_row[name] for name in SummaryRecord.__slots__)


async def find(connection: Connection, conversation: UUID) -> SummaryRecord | None:
    """Give the conversation's summary; None when none was ever tried."""
    found = (await connection.execute(select(*_COLUMNS).where(_row.conversation == conversation))).first()
    if found is None:
        return None
    values = found._asdict()
    values["covers"] = tuple((first, last) for first, last in values["covers"])
    return SummaryRecord(**values)


async def write(connection: Connection, new: SummaryRecord, *, seen: int, fence: int) -> bool:
    """Write the summary in place of the version that was `seen` (0: none); False when another was faster.

    False also when the operation no longer holds its fence, or the conversation is gone.
    """
    values = {name: getattr(new, name) for name in SummaryRecord.__slots__}
    values["covers"] = [list(span) for span in new.covers]
    values["memory"] = dict(new.memory) if new.memory is not None else None
    values["failed"] = dict(new.failed) if new.failed is not None else None
    holder = select(conversations.c.id).where(conversations.c.id == new.conversation, conversations.c.fence == fence)
    if await connection.scalar(holder.with_for_update(read=True)) is None:
        return False
    changes = {name: value for name, value in values.items() if name != "conversation"}
    upsert = insert(rolling_summaries).values(**values)
    statement = upsert.on_conflict_do_update(
        index_elements=["conversation"], set_={**changes, "updated_at": func.now()}, where=_row.version == seen
    ).returning(_row.version)
    return await connection.scalar(statement) is not None
