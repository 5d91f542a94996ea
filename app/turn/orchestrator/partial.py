"""The text that the readers of an unfinished operation could have, and the guardrails' word on it.

Guards may ask models, so they are asked before the transaction that ends the operation; that one looks whether the
text is still the one that was judged.
"""

import asyncio
from typing import Final
from uuid import UUID

from app.domain.errors import GuardrailMissingError
from app.domain.frozen import dataclass
from app.domain.jsontext import loads
from app.domain.views import Cursor
from app.guardrails.base import GuardContext, OutputChunk
from app.guardrails.outgoing import OutputJudge
from app.store import inbound
from app.store.database import Connection
from app.store.events import read_after
from app.store.inbound import InboundRecord
from app.store.streams import find_stream
from app.streaming.frames import split
from app.turn.orchestrator.services import Services

BATCHES: Final = 500
JUDGING_SECONDS: Final = 10.0
DATA: Final = b"\ndata: "
DELTA: Final = b"\nevent: text_delta\n"


class UnjudgedError(Exception):
    """There is more text by now than the guardrails have judged: they have to be asked again."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A text that the guardrails have judged, and what they left of it."""

    text: str
    left: str

    def of(self, found: str) -> str:
        """Give what is left of the text that was found; UnjudgedError when it is not the one that was judged."""
        if found != self.text:
            raise UnjudgedError
        return self.left


async def partial_text(connection: Connection, entry: InboundRecord) -> str:
    """Give the text that the operation's readers could have, as far as it is durable."""
    texts: list[str] = []
    cursor = Cursor(entry.fence, 0)
    while True:
        found = await read_after(connection, entry.conversation, entry.stream_id, cursor, limit=BATCHES)
        own = [batch for batch in found if batch.fence == entry.fence]
        frames = (frame for batch in own for frame in split(batch.frames))
        texts += [loads(frame[frame.index(DATA) + len(DATA) :])["text_delta"] for frame in frames if DELTA in frame]
        if len(own) < BATCHES:
            return "".join(texts)
        cursor = Cursor(entry.fence, own[-1].last_n)


async def judged_partial(services: Services, conversation: UUID, operation: UUID) -> Judged | None:
    """Judge the operation's text as a final reply; None where no guard judges it. Without a verdict nothing is left."""
    if not services.guards.may_judge_output:
        return None
    async with services.database.transaction() as connection:
        # Nothing was said by an operation that was not touched.
        touched = await inbound.was_touched(connection, conversation, operation)
        entry = await inbound.find(connection, conversation, operation) if touched else None
        text = await partial_text(connection, entry) if entry is not None else ""
        stream = await find_stream(connection, conversation, entry.stream_id) if entry is not None else None
    if entry is None or stream is None or not text.strip():
        return Judged(text, text)
    persona = services.personas.known(stream.persona_id)
    context = GuardContext(
        user_id=stream.user_id,
        session_id=str(entry.payload.get("session_id") or stream.conversation_id),
        persona_id=persona.id,
        conversation_id=stream.conversation_id,
        organization_id=stream.organization_id,
    )
    try:
        active = services.guards.active(persona.guardrails)
    except GuardrailMissingError:
        return Judged(text, "")
    judge = OutputJudge(services.guards.asking, active, context)
    fields = {"final_response_text": text}
    try:
        async with asyncio.timeout(JUDGING_SECONDS):
            verdict = await judge.final(OutputChunk("final_response", text, is_final=True, fields=fields))
    except TimeoutError:
        return Judged(text, "")
    if verdict.block is not None:
        return Judged(text, verdict.block.evaluation.replacement_text or "")
    return Judged(text, verdict.value.text or "")
