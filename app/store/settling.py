"""What T2 stores of an operation once it has let the conversation go: in one statement."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from app.domain.usage import ModelCall
from app.store import events, inbound, messages, sessions, streams, usage
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


_WRITE: Final = Statement(f"""
WITH ended AS ({streams.END}),
finished AS ({inbound.FINISH}),
said AS ({messages.APPEND}),
billed AS ({usage.APPEND}),
{sessions.KEEP},
told AS ({events.INSERT})
SELECT traced FROM counted
""")  # noqa: S608 - put together of constants


async def write(connection: Connection, ended: Ended) -> None:
    """Write the end of an operation, in the transaction that has let its conversation go."""
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
    counted = await _WRITE.first(connection, values)
    if ended.kept is not None:
        await sessions.trim(connection, ended.kept, counted["traced"])
