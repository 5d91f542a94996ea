"""T2: an operation's outcome, in one transaction, and only then to its readers."""

from uuid import UUID

from app.domain.pause import PauseEvent, PauseState
from app.domain.turn import StreamStatus
from app.store import claims, conversations, pauses, settling, streams
from app.store.database import Connection, OutcomeUnknownError
from app.store.events import insert_batches, rewrite
from app.store.pauses import PauseRecord
from app.store.settling import Ended
from app.store.streams import StreamEnd
from app.streaming.frames import encode_end, redacted
from app.streaming.ring import Batch, LostFenceError, Ring
from app.turn.orchestrator import tracing
from app.turn.orchestrator.effects import NewPause, Outcome
from app.turn.orchestrator.operation import Operation
from app.turn.orchestrator.queue import free
from app.turn.orchestrator.remembering import learn_behind, remember_behind


async def settle(
    operation: Operation, ring: Ring, outcome: Outcome, *, taken_pause: str | None, close_reason: str | None
) -> None:
    """Write the outcome and announce it.

    `taken_pause` is the pause that a continuation answers; it is over with this. `close_reason` is why the stream is
    closed, where that is not simply its end. Raises LostFenceError when another operation took over: nothing was
    written then and nothing is announced.
    """
    services = operation.services
    if outcome.redact:
        ring.rewrite(redacted)
    await services.log.seal(ring)
    tracing.note_end(operation, outcome)
    frames = operation.encode_from(ring.last_n + 1, outcome.chunks, operation.fence)
    extra = {"pause_id": outcome.pause.pause_id} if outcome.pause else {}
    if outcome.close_reason:
        extra["reason"] = outcome.close_reason
    end_n = ring.last_n + len(frames) + 1
    frames.append(encode_end(operation.fence, end_n, outcome.status, extra))
    last = Batch(operation.conversation, operation.stream_id, operation.fence, ring.last_n + 1, end_n, b"".join(frames))

    async def work(connection: Connection) -> bool:
        mine = await claims.release(connection, operation.conversation, operation=operation.id, fence=operation.fence)
        if mine:
            if taken_pause is not None:
                await _end_taken(connection, operation.conversation, taken_pause, outcome.status)
            await _write(connection, operation, outcome, ring.all_batches(), last, close_reason=close_reason)
        return mine

    async def landed(connection: Connection) -> bool | None:
        # The end of this very fence tells: another process that ended the operation did so under a higher one.
        await claims.lock(connection, operation.conversation)
        record = await streams.find_stream(connection, operation.conversation, operation.stream_id)
        ended = record is not None and any(end["fence"] == operation.fence for end in record.ends)
        return True if ended else None

    gone = services.lease.is_gone
    try:
        mine = await services.database.land(work, landed, give_up=lambda: gone(operation.replica))
    except OutcomeUnknownError:
        mine = False
    if not mine:
        ring.lose()
        raise LostFenceError
    ring.append_durable(frames)
    services.wakeups.wake([operation.stream_id, free(operation.conversation)])
    for begin in operation.afterwards:
        begin(outcome.status)
    remember_behind(operation, outcome)
    learn_behind(operation, outcome)


async def _write(
    connection: Connection,
    operation: Operation,
    outcome: Outcome,
    unwritten: list[Batch],
    last: Batch,
    *,
    close_reason: str | None,
) -> None:
    """Write everything that ends with the operation; `last` are the frames that say so, behind the `unwritten` ones."""
    policy = operation.services.policy
    end = StreamEnd(
        fence=operation.fence,
        last=last.last_n,
        status=outcome.status,
        close_reason=outcome.close_reason or close_reason or ("ended" if outcome.status.closed else None),
        pause_id=outcome.pause.pause_id if outcome.pause else None,
        usage=outcome.usage.to_json(),
        final_response=outcome.final_response,
        error=outcome.error,
    )
    late = operation.late_answers() if policy.persistence else []
    ended = Ended(
        conversation=operation.conversation,
        stream_id=operation.stream_id,
        turn_id=operation.turn_id,
        operation=operation.id,
        end=end,
        messages=[*late, *outcome.messages],
        calls=operation.calls,
        kept=tracing.kept(operation),
        batches=unwritten if outcome.redact else [*unwritten, last],
        erase=outcome.status.closed and not policy.persistence,
    )
    await settling.write(connection, ended)
    if operation.keeps and policy.persistence:
        await conversations.keep_preparation(connection, operation.conversation, operation.keeps)
    if outcome.pause is not None:
        await pauses.hold(connection, _record(operation, outcome.pause))
    if outcome.redact:
        # Text that was stored before the verdict on it goes; what the outcome says is stored behind that.
        await rewrite(connection, operation.conversation, operation.stream_id, operation.fence, redacted)
        await insert_batches(connection, [last])


async def _end_taken(connection: Connection, conversation: UUID, pause_id: str, status: StreamStatus) -> None:
    failed = status in {StreamStatus.FAILED, StreamStatus.CANCELLED}
    event = PauseEvent.INTERRUPTED if failed else PauseEvent.SETTLED
    await pauses.move_from(connection, conversation, pause_id, PauseState.RECORDED, event, reason="continued")


def _record(operation: Operation, pause: NewPause) -> PauseRecord:
    return PauseRecord(
        conversation=operation.conversation,
        pause_id=pause.pause_id,
        organization_id=operation.caller.organization_id,
        conversation_id=operation.conversation_id,
        user_id=operation.caller.user_id,
        session_id=operation.session_id,
        persona_id=pause.snapshot.persona["id"],
        stream_id=operation.stream_id,
        turn_id=operation.turn_id,
        fence=operation.fence,
        state=PauseState.HELD,
        end_reason=None,
        calls=pause.calls,
        results=(),
        rationale=pause.rationale,
        snapshot=pause.snapshot.to_json(),
        requested_at=operation.services.clock.now(),
        on_expiry=pause.snapshot.terms.at_expiry,
        ttl_seconds=pause.snapshot.terms.ttl_seconds,
    )
