"""Keeps pauses: every change of a stored pause, each inside the transaction of the operation that makes it."""

from collections.abc import Sequence
from datetime import datetime

from app.domain.answers import missing_answers, result_message
from app.domain.approval import settled
from app.domain.errors import InvalidStateError
from app.domain.ids import fresh, gmi_instance_id
from app.domain.pause import PauseEvent
from app.domain.tools import ToolResult
from app.domain.turn import StreamStatus
from app.store import pauses, streams
from app.store.database import Connection
from app.store.events import insert_batches
from app.store.messages import NewMessage
from app.store.pauses import PauseRecord
from app.streaming.frames import Envelope, encode_end
from app.streaming.ring import Batch
from app.turn.delivery import emitter


def answers(pause: PauseRecord, results: Sequence[ToolResult], *, to_run: bool = False) -> list[NewMessage]:
    """Give the stored answers of a pause: the results in the order given, then a stand-in for each other call (R95).

    With `to_run`, approved calls are about to be run: their answers are stored when they are there.
    """
    given = [*settled(pause.calls, results, to_run=to_run), *missing_answers(pause.calls, results)]
    return [NewMessage(fresh("msg"), result_message(result), pause.turn_id) for result in given]


async def record(
    connection: Connection, pause: PauseRecord, results: Sequence[ToolResult], *, resumed: bool
) -> list[NewMessage]:
    """Take the pause with these results; gives the messages to store. InvalidStateError when it is no longer held."""
    event = PauseEvent.RESUMED if resumed else PauseEvent.RESULTS
    if not await pauses.move(connection, pause, event, results=results):
        message = "The pause was continued or ended in the meantime."
        raise InvalidStateError(message, pause_id=pause.pause_id)
    return answers(pause, results, to_run=True)


async def end(
    connection: Connection,
    pause: PauseRecord,
    *,
    event: PauseEvent,
    fence: int,
    now: datetime,
    continued_on: str | None = None,
) -> list[NewMessage]:
    """End a held pause without its host (R106 to R113): calls answered, stream closed; gives the messages to store.

    Results that came before count as the answers of their calls.
    """
    if not await pauses.move(connection, pause, event, reason=event.value):
        message = "The pause was continued or ended in the meantime."
        raise InvalidStateError(message, pause_id=pause.pause_id)
    await close_stream(connection, pause, by=event, fence=fence, now=now, continued_on=continued_on)
    return answers(pause, pause.results)


async def close_stream(
    connection: Connection,
    pause: PauseRecord,
    *,
    by: PauseEvent,
    fence: int,
    now: datetime,
    continued_on: str | None,
) -> None:
    """Close the stream a pause was held on, and say on it what resolved the pause (R113, R189)."""
    envelope = Envelope(
        stream_id=pause.stream_id,
        gmi_instance_id=gmi_instance_id(pause.organization_id, pause.user_id, pause.session_id, pause.persona_id),
        persona_id=pause.persona_id,
    )
    resolved = emitter.metadata_update({"pause_resolved": {"pause_id": pause.pause_id, "by": by.value}})
    extra = {"reason": by.value} | ({"continued_on": continued_on} if continued_on else {})
    frames = [
        envelope.encode(fence, 1, resolved, now),
        encode_end(fence, 2, StreamStatus.CANCELLED, extra),
    ]
    await insert_batches(
        connection, [Batch(pause.conversation, pause.stream_id, fence, 1, len(frames), b"".join(frames))]
    )
    closed = streams.StreamEnd(
        fence=fence,
        last=len(frames),
        status=StreamStatus.CANCELLED,
        close_reason=by.value,
        continued_on=continued_on,
    )
    await streams.end_operation(connection, pause.conversation, pause.stream_id, closed)
