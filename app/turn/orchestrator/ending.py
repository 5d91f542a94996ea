"""Ends an operation that its own process can't or won't end: after a crash, or when it must make way.

The fence is raised in the same transaction, so whatever the old process still writes lands nowhere. What readers had
is kept: the durable part of the text becomes the reply, and the stream says why it ended.
"""

from dataclasses import replace
from datetime import datetime

from app.domain.answers import result_message
from app.domain.approval import approved_calls, unrun
from app.domain.chunks import GmiError, GmiOutput, StreamChunk
from app.domain.frozen import dataclass
from app.domain.ids import fresh, gmi_instance_id
from app.domain.messages import Message
from app.domain.pause import PauseEvent, PauseState
from app.domain.tools import ToolResult
from app.domain.turn import StreamStatus
from app.domain.usage import Usage
from app.store import inbound, messages, pauses, streams
from app.store.claims import Seized
from app.store.database import Connection
from app.store.events import insert_batches, rewrite
from app.store.inbound import InboundRecord
from app.store.messages import NewMessage
from app.store.streams import StreamEnd
from app.streaming.frames import Envelope, encode_end, redacted
from app.streaming.ring import Batch
from app.turn.delivery import emitter, final_response
from app.turn.orchestrator.partial import Judged, partial_text
from app.turn.orchestrator.services import Services
from app.turn.orchestrator.tracing import keep_seized


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an operation is ended by another: how its stream ends, and the error that it says, if any."""

    status: StreamStatus
    word: str
    error: GmiError | None = None


async def end_seized(
    connection: Connection,
    services: Services,
    seized: Seized,
    entry: InboundRecord,
    reason: Reason,
    *,
    judged: Judged | None = None,
) -> None:
    """Write the end of the operation whose conversation was seized, in the same transaction.

    `judged` is what the guardrails made of its text before; UnjudgedError when there is more of that by now.
    """
    found = await partial_text(connection, entry)
    text = judged.of(found) if judged is not None else found
    if judged is not None and text != found:
        await rewrite(connection, entry.conversation, entry.stream_id, entry.fence, redacted)
    if services.policy.persistence:
        await messages.append(connection, entry.conversation, await _late_answers(connection, entry))
    reply = None
    if text.strip() and services.policy.persistence:
        metadata = {"source": "output", "interrupted": True}
        reply = NewMessage(fresh("msg"), Message("assistant", text, metadata=metadata), entry.turn_id)
        await messages.append(connection, entry.conversation, [reply])
    before = await _usage_before(connection, entry)
    journal = await inbound.rounds(connection, entry.conversation, entry.operation)
    usage = Usage.from_json(journal[-1]["usage"]) if journal else before
    await _close(connection, services, seized, entry, reason, text=text, usage=usage, reply=reply)
    await keep_seized(connection, services, seized, entry, reason.word)


async def end_bare(
    connection: Connection, services: Services, seized: Seized, entry: InboundRecord, reason: Reason
) -> None:
    """Write that the operation is over and nothing else, where what it had said keeps it from its end."""
    if services.guards.may_judge_output:
        await rewrite(connection, entry.conversation, entry.stream_id, entry.fence, redacted)
    usage = await _usage_before(connection, entry)
    await _close(connection, services, seized, entry, reason, text="", usage=usage, reply=None)


async def _close(
    connection: Connection,
    services: Services,
    seized: Seized,
    entry: InboundRecord,
    reason: Reason,
    *,
    text: str,
    usage: Usage,
    reply: NewMessage | None,
) -> None:
    payload = final_response.build(
        GmiOutput(is_final=True, response_text=text or None, error=reason.error),
        usage=usage,
        turn_id=entry.turn_id,
        message_id=reply.message_id if reply else None,
        persona=services.personas.known(entry.payload["persona_id"]),
        plain_text=services.plain_text,
    )
    chunks = [emitter.error(reason.error.code, reason.error.message)] if reason.error else []
    last = await _write_frames(
        connection, seized, entry, [*chunks, emitter.final_response(payload)], now=services.clock.now(), reason=reason
    )
    end = StreamEnd(
        fence=seized.fence,
        last=last,
        status=reason.status,
        close_reason=reason.word if reason.status is StreamStatus.CANCELLED else "ended",
        usage=usage.to_json(),
        final_response=payload,
        error=reason.error.to_json() if reason.error else None,
    )
    await streams.end_operation(connection, entry.conversation, entry.stream_id, end)
    await inbound.finish(connection, entry.conversation, entry.operation, reason.status.value)


async def _late_answers(connection: Connection, entry: InboundRecord) -> list[NewMessage]:
    """Answer the calls that were approved: with what its journal says they gave, else as not run."""
    if entry.pause_id is None:
        return []
    pause = await pauses.find(connection, entry.conversation, entry.pause_id)
    if pause is None or pause.state is not PauseState.RECORDED:
        return []
    ran = {
        stored["tool_call_id"]: ToolResult.from_json(stored)
        for round_ in await inbound.rounds(connection, entry.conversation, entry.operation)
        for stored in round_["results"]
    }
    answers = []
    for call in approved_calls(pause.calls, pause.results):
        stand_in = unrun(call, pause.results)
        result = replace(ran[call.id], decision=stand_in.decision) if call.id in ran else stand_in
        answers.append(NewMessage(fresh("msg"), result_message(result), entry.turn_id))
    return answers


async def _usage_before(connection: Connection, entry: InboundRecord) -> Usage:
    """End the pause that the operation had taken, and give what its turn had used until then."""
    if entry.pause_id is None:
        return Usage()
    pause = await pauses.find(connection, entry.conversation, entry.pause_id, for_update=True)
    if pause is None or pause.state is not PauseState.RECORDED:
        return Usage()
    await pauses.move(connection, pause, PauseEvent.INTERRUPTED, reason="continued")
    return Usage.from_json((pause.snapshot or {}).get("usage", {}))


async def _write_frames(
    connection: Connection,
    seized: Seized,
    entry: InboundRecord,
    chunks: list[StreamChunk],
    *,
    now: datetime,
    reason: Reason,
) -> int:
    persona_id = entry.payload["persona_id"]
    envelope = Envelope(
        stream_id=entry.stream_id,
        gmi_instance_id=gmi_instance_id(seized.organization_id, seized.user_id, seized.session_id, persona_id),
        persona_id=persona_id,
    )
    frames = [envelope.encode(seized.fence, n, chunk, now) for n, chunk in enumerate(chunks, start=1)]
    frames.append(encode_end(seized.fence, len(frames) + 1, reason.status, {"reason": reason.word}))
    batch = Batch(entry.conversation, entry.stream_id, seized.fence, 1, len(frames), b"".join(frames))
    await insert_batches(connection, [batch])
    return len(frames)
