"""What long-term memory is given behind a turn: what was said and answered, what its finds were good for, summaries.

Nothing waits for it and nothing fails by it (R262, R315). A crash before it is done, or an erased conversation,
discards it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

import structlog

from app.domain.memory import MemoryPlace, NewMemory
from app.domain.memory_policy import NewSummary
from app.domain.messages import text_of
from app.domain.session import TraceEntry
from app.domain.traits import told_traits
from app.domain.turn import StreamStatus
from app.memory.formulas import MOODS
from app.memory.longterm import LearnsFromReplies, TakesSummaries
from app.turn.orchestrator.effects import Outcome
from app.turn.orchestrator.operation import Operation
from app.turn.orchestrator.tracing import note_late

NOT_KEPT: Final = "What the turn left to keep could not be kept."
CODES: Final = {"turn_document": "RAG_INGESTION_FAILED"}


def remember_behind(operation: Operation, outcome: Outcome) -> None:
    """Begin to remember what the settled outcome leaves; nothing, for a persona without memory."""
    notes = notes_of(operation, outcome)
    if notes:
        behind(operation, partial(operation.services.memories.remember, notes), "memory")


def learn_behind(operation: Operation, outcome: Outcome) -> None:
    """Begin to tell long-term memory which reply came of what it gave; without a reply with text, nothing."""
    memory: object = operation.services.memories
    persona = operation.persona
    if not operation.recalled or persona is None or not isinstance(memory, LearnsFromReplies):
        return
    reply = "\n".join(_replies(outcome)) if outcome.status is StreamStatus.COMPLETED else ""
    if not reply.strip():
        return
    place = MemoryPlace(operation.caller, operation.conversation_id, persona.id)
    for recalled in operation.recalled:
        behind(operation, partial(memory.learn, place, recalled.feedback, reply), "memory_feedback")


def give_summary(operation: Operation, summary: NewSummary) -> None:
    """Begin to give long-term memory a summary that the turn has made, if it takes summaries."""
    memory: object = operation.services.aids.memory
    if isinstance(memory, TakesSummaries):
        behind(operation, partial(memory.take_summary, summary), "memory_summary")


def behind(operation: Operation, work: Callable[[], Awaitable[object]], name: str) -> None:
    """Begin work for which nobody waits, behind what was begun before for the session; its failure is logged."""
    key = ("memory", operation.caller, operation.session_id)
    operation.services.background.start(key, _try(operation, work, name), name)


async def _try(operation: Operation, work: Callable[[], Awaitable[object]], name: str) -> None:
    try:
        await _billed(operation, work)
    except Exception as error:  # noqa: BLE001 - the turn has ended well, and is told so
        what = type(error).__name__
        structlog.get_logger(__name__).warning("memory.not_kept", stream_id=operation.stream_id, what=name, error=what)
        about = {"code": CODES.get(name, "MEMORY_NOT_KEPT"), "what": name, "error": what}
        await note_late(operation, TraceEntry(operation.services.clock.now(), "error", NOT_KEPT, None, about))


async def _billed(operation: Operation, work: Callable[[], Awaitable[object]]) -> None:
    """Do the work, and put the requests that it has made of models into the ledger."""
    known = len(operation.calls)
    try:
        await work()
    finally:
        if len(operation.calls) > known:
            async with operation.services.database.transaction() as connection:
                await operation.keep_calls(connection)


def _replies(outcome: Outcome) -> list[str]:
    return [text_of(new.message.content) for new in outcome.messages if new.message.role == "assistant"]


def notes_of(operation: Operation, outcome: Outcome) -> list[NewMemory]:
    """Give what is remembered, as the conversation keeps it.

    A turn that failed, or was blocked or cancelled, leaves nothing.
    """
    persona = operation.persona
    if persona is None or not persona.memory.enabled or not operation.services.policy.persistence:
        return []
    if outcome.status not in {StreamStatus.COMPLETED, StreamStatus.PAUSED}:
        return []
    valence, arousal = MOODS.get(operation.session.state.mood, (0.0, 0.0))
    told = NewMemory(
        place=MemoryPlace(operation.caller, operation.conversation_id, persona.id),
        scope=persona.memory.scope,
        content=operation.said,
        valence=valence,
        arousal=arousal,
        sentiment=operation.sentiment,
        traits=told_traits(persona, operation.session.state.traits),
    )
    notes = [told] if operation.said and persona.memory.remembers_user else []
    if outcome.status is StreamStatus.COMPLETED and persona.memory.remembers_replies:
        notes += [
            replace(told, content=reply, type="semantic", source="agent_inference", sentiment=0.0)
            for reply in _replies(outcome)
        ]
    return notes
