"""What T1 stores of an accepted operation once it has the conversation: in one statement.

It is a statement of its own, behind the one that takes the conversation, since it must see what the operation before
has committed while that one waited for the lock.
"""

from collections.abc import Sequence
from typing import Final

from app.store import events, inbound, messages, streams
from app.store.database import Connection
from app.store.events import StoredBatch
from app.store.inbound import InboundRecord
from app.store.messages import NewMessage
from app.store.sql import Statement

_ACCEPT: Final = Statement(f"""
WITH held AS (
    SELECT pause_id FROM pending_external_tool_requests WHERE conversation = :conversation::uuid AND state = 'held'
    FOR UPDATE
),
recorded AS ({inbound.RECORD}),
opened AS ({streams.OPEN}),
said AS ({messages.appending("NOT EXISTS (SELECT FROM held)")}),
told AS ({events.inserting()})
SELECT pause_id FROM held
""")  # noqa: S608 - put together of constants


async def accept(
    connection: Connection,
    entry: InboundRecord,
    *,
    persona_id: str,
    ephemeral: bool,
    new: Sequence[NewMessage],
    batches: Sequence[StoredBatch],
) -> bool:
    """Store the operation, its stream, its messages and its first frames; KeyTakenError when its key is in use.

    Gives False when the conversation still holds a pause: that is locked, and the messages are left to be stored, since
    the answers of the pause come before them.
    """
    values = {
        **inbound.values(entry),
        **messages.values(new),
        **events.values(batches),
        "persona_id": persona_id,
        "ephemeral": ephemeral,
    }
    with inbound.refusing_keys():
        return await _ACCEPT.first(connection, values) is None
