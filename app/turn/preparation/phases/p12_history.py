"""Phase 12: the messages that the model is told, and what preparation decided, on the stream (R254, R333 to R335)."""

import structlog

from app.conversation.valid import valid
from app.conversation.window import window
from app.domain.messages import Message
from app.store import messages
from app.turn.delivery import emitter
from app.turn.preparation.draft import PhaseServices, TurnDraft


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Assemble the history, the input last, and announce the routing block."""
    _, _, new = draft.chosen()
    stored = await _stored(draft, services)
    if not services.policy.persistence:
        stored = [new.message]
    repaired = valid(window(stored, limit=services.policy.history_limit, head=services.policy.history_head))
    if repaired.repairs:
        structlog.get_logger(__name__).warning("history.repaired", repairs=repaired.repairs)
    draft.history = repaired.messages
    services.emit(emitter.metadata_update(draft.routing))
    services.emit(emitter.lifecycle("executing", "ok", services.clock.now()))


async def _stored(draft: TurnDraft, services: PhaseServices) -> list[Message]:
    """Read what the window can need: the head, and enough of the tail that a round at its edge is whole."""
    policy = services.policy
    tail = policy.history_limit + ROUND_REACH if policy.history_limit > 0 else 0
    async with services.database.transaction() as connection:
        records = await messages.head_and_tail(connection, draft.turn.conversation, head=policy.history_head, tail=tail)
    return [record.message() for record in records]


ROUND_REACH = 64
"""How many messages of one tool round the window may reach into beyond its limit."""
