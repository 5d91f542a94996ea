"""What T2 stores of an operation: in one statement, which lets the conversation go and does all else only if it could.

The first part waits for whoever has the conversation locked, and then looks at the newest row. All other parts see what
was committed when the statement began, and that is enough: nobody else writes what belongs to an operation that still
holds its fence.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from app.domain.frozen import dataclass
from app.domain.usage import ModelCall
from app.store import claims, events, inbound, messages, sessions, streams, usage
from app.store.database import Connection
from app.store.events import StoredBatch
from app.store.messages import NewMessage
from app.store.sessions import Kept
from app.store.sql import Statement
from app.store.streams import StreamEnd


@dataclass(frozen=True, slots=True)
class Ended:
    """An operation's end: how it left its stream, and all that it leaves behind.

    `calls` are all that it made, of which some may be stored already. With `erase` its payload goes.
    """

    conversation: UUID
    stream_id: str
    turn_id: str
    operation: UUID
    end: StreamEnd
    messages: Sequence[NewMessage]
    calls: Sequence[ModelCall]
    kept: Kept | None
    batches: Sequence[StoredBatch]
    erase: bool = False


_MINE: Final = "EXISTS (SELECT FROM released)"
_WRITE: Final = Statement(f"""
WITH released AS ({claims.RELEASE}),
ended AS ({streams.ending(_MINE)}),
finished AS ({inbound.finishing(_MINE)}),
said AS ({messages.appending(_MINE)}),
billed AS ({usage.appending(_MINE)}),
{sessions.keeping(_MINE)},
told AS ({events.inserting(_MINE)})
SELECT (SELECT traced FROM counted) AS traced FROM released
""")  # noqa: S608 - put together of constants


async def write(connection: Connection, ended: Ended) -> bool:
    """Write the end of an operation; False, and nothing is written, when it no longer holds its fence.

    Outside a transaction the session's trace is trimmed by one of its own: what a crash leaves the session's next
    operation trims.
    """
    values = {
        **streams.end_values(ended.end),
        **messages.values(ended.messages),
        **sessions.values(ended.kept),
        **events.values(ended.batches),
        "conversation": ended.conversation,
        "stream_id": ended.stream_id,
        "turn_id": ended.turn_id,
        "operation": ended.operation,
        "calls": usage.values(ended.calls),
        "erase": ended.erase,
    }
    written = await _WRITE.first(connection, values)
    if written is not None and ended.kept is not None:
        await sessions.trim(connection, ended.kept, written["traced"])
    return written is not None
