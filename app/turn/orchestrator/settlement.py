"""T2: an operation's outcome, in one transaction, and only then to its readers."""

from collections.abc import Awaitable, Callable
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

Write = Callable[[Connection], Awaitable[object]]


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

    ended = _ended(operation, outcome, [*ring.all_batches(), last], close_reason)
    more = _more(operation, outcome, last, taken_pause)

    async def work(connection: Connection) -> bool:
        mine = await settling.write(connection, ended)
        if mine:
            for write in more:
                await write(connection)
        return mine

    async def landed(connection: Connection) -> bool | None:
        # The end of this very fence tells: another process that ended the operation did so under a higher one.
        await claims.lock(connection, operation.conversation)
        record = await streams.find_stream(connection, operation.conversation, operation.stream_id)
        ended = record is not None and any(end["fence"] == operation.fence for end in record.ends)
        return True if ended else None

    gone = services.lease.is_gone
    try:
        mine = await services.database.land(work, landed, give_up=lambda: gone(operation.replica), alone=not more)
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


def _ended(operation: Operation, outcome: Outcome, batches: list[Batch], close_reason: str | None) -> Ended:
    """Give what ends with every operation; the last of the batches has the frames that say so."""
    policy, last = operation.services.policy, batches[-1]
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
    return Ended(
        conversation=operation.conversation,
        stream_id=operation.stream_id,
        turn_id=operation.turn_id,
        operation=operation.id,
        end=end,
        messages=[*late, *outcome.messages],
        calls=operation.calls,
        kept=tracing.kept(operation),
        batches=batches[:-1] if outcome.redact else batches,
        erase=outcome.status.closed and not policy.persistence,
    )


def _more(operation: Operation, outcome: Outcome, last: Batch, taken_pause: str | None) -> list[Write]:
    """Give what this outcome writes besides; most write nothing, and need no transaction around their one statement."""
    more: list[Write] = []
    if taken_pause is not None:
        failed = outcome.status in {StreamStatus.FAILED, StreamStatus.CANCELLED}
        event = PauseEvent.INTERRUPTED if failed else PauseEvent.SETTLED
        more.append(lambda connection: _end_taken(connection, operation.conversation, taken_pause, event))
    if operation.keeps and operation.services.policy.persistence:
        more.append(
            lambda connection: conversations.keep_preparation(connection, operation.conversation, operation.keeps)
        )
    if outcome.pause is not None:
        record = _record(operation, outcome.pause)
        more.append(lambda connection: pauses.hold(connection, record))
    if outcome.redact:
        more.append(lambda connection: _redact(connection, operation, last))
    return more


async def _end_taken(connection: Connection, conversation: UUID, pause_id: str, event: PauseEvent) -> None:
    await pauses.move_from(connection, conversation, pause_id, PauseState.RECORDED, event, reason="continued")


async def _redact(connection: Connection, operation: Operation, last: Batch) -> None:
    """Let text go that was stored before the verdict on it; what the outcome says is stored behind that."""
    await rewrite(connection, operation.conversation, operation.stream_id, operation.fence, redacted)
    await insert_batches(connection, [last])


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
