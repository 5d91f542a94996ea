"""What T1 stores of an accepted operation once it has the conversation: in one statement.

It is a statement of its own, behind the one that takes the conversation, since it must see what the operation before
has committed while that one waited for the lock. Most turns meet nobody: they take their conversation by the same
statement, which does nothing when somebody was faster.
"""

from collections.abc import Sequence
from typing import Final

from app.store import claims, events, inbound, messages, streams
from app.store.claims import Claim
from app.store.database import Connection
from app.store.events import StoredBatch
from app.store.inbound import InboundRecord
from app.store.messages import NewMessage
from app.store.sql import Statement

_HELD: Final = """
SELECT pause_id FROM pending_external_tool_requests WHERE conversation = :conversation::uuid AND state = 'held'
"""
_ACCEPT: Final = Statement(f"""
WITH held AS ({_HELD}),
recorded AS ({inbound.recording()}),
opened AS ({streams.opening()}),
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

    Gives False when the conversation still holds a pause: the messages are left to be stored then, since the answers of
    the pause come before them.
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


_FENCE: Final = "(SELECT fence FROM taken)"
_MINE: Final = "EXISTS (SELECT FROM taken)"
_ACCEPT_FREE: Final = Statement(f"""
WITH taken AS ({claims.taking(f"NOT EXISTS ({_HELD})")}),
recorded AS ({inbound.recording(_FENCE, _MINE)}),
opened AS ({streams.opening(_FENCE, _MINE)}),
said AS ({messages.appending(_MINE)}),
told AS (
    INSERT INTO stream_events (conversation, stream_id, fence, first_n, last_n, frames)
    SELECT :conversation::uuid, :stream_id::text, taken.fence, 1, count(*),
        string_agg(convert_to(format('id: %s-%s', taken.fence, frame.n), 'UTF8') || frame.rest, ''::bytea ORDER BY n)
    FROM taken, unnest(:rests::bytea[]) WITH ORDINALITY AS frame(rest, n)
    GROUP BY taken.fence
)
SELECT fence FROM taken
""")  # noqa: S608 - put together of constants


async def accept_free(
    connection: Connection,
    claim: Claim,
    entry: InboundRecord,
    *,
    ephemeral: bool,
    new: Sequence[NewMessage],
    rests: Sequence[bytes],
) -> int | None:
    """Take a conversation that is free and holds no pause, store the same as `accept`, and give the fence.

    None, and nothing is stored, for any other conversation. `rests` are the first frames without their ids, which get
    the fence that is taken. KeyTakenError when the operation's key is in use.
    """
    values = {
        **claims.values(claim),
        **inbound.values(entry),
        **messages.values(new),
        "persona_id": claim.persona_id,
        "ephemeral": ephemeral,
        "rests": list(rests),
    }
    with inbound.refusing_keys():
        taken = await _ACCEPT_FREE.first(connection, values)
    return None if taken is None else int(taken["fence"])
