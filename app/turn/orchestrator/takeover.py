"""Takeover: operations whose process has gone are ended by another, within seconds, so that no conversation is stuck.

What their readers had is kept: the partial text that was durable becomes the reply, open calls are answered, the stream
says `TURN_INTERRUPTED` and ends.
"""

import asyncio
from uuid import UUID

import structlog

from app.domain.chunks import GmiError, GmiOutput, StreamChunk
from app.domain.errors import TurnInterruptedError
from app.domain.ids import fresh, gmi_instance_id
from app.domain.jsontext import loads
from app.domain.messages import Message
from app.domain.pause import PauseEvent, PauseState
from app.domain.turn import StreamStatus
from app.domain.usage import Usage
from app.domain.views import Cursor
from app.store import conversations, inbound, messages, pauses, replicas, streams
from app.store.conversations import Seized
from app.store.database import Connection, is_lost
from app.store.events import insert_batches, read_after
from app.store.inbound import InboundRecord
from app.store.messages import NewMessage
from app.store.streams import StreamEnd
from app.streaming.frames import Envelope, encode_end, split
from app.streaming.ring import Batch
from app.turn.delivery import emitter, final_response
from app.turn.orchestrator.services import Services

BATCHES = 2000
AT_ONCE = 20
DATA = b"\ndata: "


class Takeover:
    """Looks for dead replicas every `interval` seconds and ends what they ran."""

    def __init__(self, services: Services, *, interval: float) -> None:
        """Keep what is needed; `run` does the work."""
        self._database = services.database
        self._services = services
        self._interval = interval
        self._log = structlog.get_logger(__name__)

    async def run(self) -> None:
        """Sweep for ever."""
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self.sweep()
            except Exception as error:  # noqa: BLE001 - sweeps go on whatever one met
                if not is_lost(error):
                    self._log.exception("takeover.sweep_failed")

    async def sweep(self) -> int:
        """Mark replicas whose time is over, end what dead ones ran, and tell how many operations that were."""
        if self._services.lease.may_take_over():
            async with self._database.transaction() as connection:
                await replicas.mark_expired(connection)
                await replicas.forget_dead(connection)
        async with self._database.transaction() as connection:
            orphans = await replicas.orphans(connection, AT_ONCE)
        for conversation, operation in orphans:
            await self._end(conversation, operation)
        return len(orphans)

    async def _end(self, conversation: UUID, operation: UUID) -> None:
        """End one operation in one transaction, under a higher fence than its own."""
        async with self._database.transaction() as connection:
            seized = await conversations.seize(connection, conversation, operation)
            if seized is None:
                return
            entry = await inbound.find(connection, conversation, operation)
            if entry is not None:
                await self._write_end(connection, seized, entry)
        if entry is not None:
            self._services.wakeups.wake([entry.stream_id])
            self._log.warning("takeover.ended", stream_id=entry.stream_id, turn_id=entry.turn_id)

    async def _write_end(self, connection: Connection, seized: Seized, entry: InboundRecord) -> None:
        text = await self._partial_text(connection, entry)
        error = GmiError(TurnInterruptedError.code, "The process that ran the turn went away before it ended.")
        persona = self._services.personas.known(entry.payload["persona_id"])
        reply = None
        if text.strip() and self._services.policy.persistence:
            metadata = {"source": "output", "interrupted": True}
            reply = NewMessage(fresh("msg"), Message("assistant", text, metadata=metadata), entry.turn_id)
            await messages.append(connection, entry.conversation, [reply])
        usage = await self._usage_before(connection, entry)
        payload = final_response.build(
            GmiOutput(is_final=True, response_text=text or None, error=error),
            usage=usage,
            turn_id=entry.turn_id,
            message_id=reply.message_id if reply else None,
            persona=persona,
            plain_text=self._services.plain_text,
        )
        chunks = [emitter.error(error.code, error.message), emitter.final_response(payload)]
        last = await self._write_frames(connection, seized, entry, chunks)
        end = StreamEnd(
            fence=seized.fence,
            last=last,
            status=StreamStatus.FAILED,
            close_reason="ended",
            usage=usage.to_json(),
            final_response=payload,
            error=error.to_json(),
        )
        await streams.end_operation(connection, entry.conversation, entry.stream_id, end)
        await inbound.finish(connection, entry.conversation, entry.operation, StreamStatus.FAILED.value)

    async def _usage_before(self, connection: Connection, entry: InboundRecord) -> Usage:
        """End the pause that the operation had taken, and give what its turn had used until then."""
        if entry.pause_id is None:
            return Usage()
        pause = await pauses.find(connection, entry.conversation, entry.pause_id, for_update=True)
        if pause is None or pause.state is not PauseState.RECORDED:
            return Usage()
        await pauses.move(connection, pause, PauseEvent.INTERRUPTED, reason="continued")
        return Usage.from_json((pause.snapshot or {}).get("usage", {}))

    async def _partial_text(self, connection: Connection, entry: InboundRecord) -> str:
        """Give the text that the operation's readers could have, as far as it is durable."""
        stored = await read_after(connection, entry.conversation, entry.stream_id, Cursor(entry.fence, 0), BATCHES)
        frames = (frame for batch in stored if batch.fence == entry.fence for frame in split(batch.frames))
        deltas = (frame for frame in frames if b"\nevent: text_delta\n" in frame)
        return "".join(loads(frame[frame.index(DATA) + len(DATA) :])["text_delta"] for frame in deltas)

    async def _write_frames(
        self, connection: Connection, seized: Seized, entry: InboundRecord, chunks: list[StreamChunk]
    ) -> int:
        persona_id = entry.payload["persona_id"]
        envelope = Envelope(
            stream_id=entry.stream_id,
            gmi_instance_id=gmi_instance_id(seized.organization_id, seized.user_id, seized.session_id, persona_id),
            persona_id=persona_id,
        )
        now = self._services.clock.now()
        frames = [envelope.encode(seized.fence, n, chunk, now) for n, chunk in enumerate(chunks, start=1)]
        frames.append(encode_end(seized.fence, len(frames) + 1, StreamStatus.FAILED, {"reason": "interrupted"}))
        batch = Batch(entry.conversation, entry.stream_id, seized.fence, 1, len(frames), b"".join(frames))
        await insert_batches(connection, [batch])
        return len(frames)
