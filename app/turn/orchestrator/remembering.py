"""Remembers what the user said and what was answered, behind the end of an operation (R262, R315).

Nothing waits for it and nothing fails by it. A crash before it is done, or an erased conversation, discards it.
"""

from collections.abc import Sequence

import structlog

from app.domain.memory import MemoryPlace, NewMemory
from app.domain.messages import text_of
from app.domain.turn import StreamStatus
from app.memory.formulas import MOODS
from app.turn.orchestrator.effects import Outcome
from app.turn.orchestrator.operation import Operation


def remember_behind(operation: Operation, outcome: Outcome) -> None:
    """Begin to remember what the settled outcome leaves; nothing, for a persona without memory."""
    notes = notes_of(operation, outcome)
    if notes:
        key = ("memory", operation.caller, operation.session_id)
        operation.services.background.start(key, _remember(operation, notes), "memory")


async def _remember(operation: Operation, notes: Sequence[NewMemory]) -> None:
    try:
        await operation.services.memories.remember(notes)
    except Exception as error:  # noqa: BLE001 - the turn has ended well, and is told so
        structlog.get_logger(__name__).warning(
            "memory.not_kept", stream_id=operation.stream_id, error=type(error).__name__
        )


def notes_of(operation: Operation, outcome: Outcome) -> list[NewMemory]:
    """Give what is remembered, as the conversation keeps it.

    A turn that failed, or was blocked or cancelled, leaves nothing.
    """
    persona = operation.persona
    if persona is None or not persona.memory.enabled or not operation.services.policy.persistence:
        return []
    if outcome.status not in {StreamStatus.COMPLETED, StreamStatus.PAUSED}:
        return []
    place = MemoryPlace(operation.caller, operation.conversation_id, persona.id)
    valence, arousal = MOODS.get(operation.session.state.mood, (0.0, 0.0))
    scope = persona.memory.scope
    notes = []
    if operation.said and persona.memory.remembers_user:
        notes.append(
            NewMemory(place, scope, operation.said, valence=valence, arousal=arousal, sentiment=operation.sentiment)
        )
    if outcome.status is StreamStatus.COMPLETED and persona.memory.remembers_replies:
        replies = [text_of(new.message.content) for new in outcome.messages if new.message.role == "assistant"]
        notes += [
            NewMemory(place, scope, reply, "semantic", "agent_inference", valence=valence, arousal=arousal)
            for reply in replies
        ]
    return notes
