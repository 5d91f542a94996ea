"""Phase 12: prompt and messages that the model is told, and what preparation decided (R254, R258, R333 to R335)."""

import asyncio
from collections.abc import Sequence
from typing import Any

import structlog

from app.conversation.budget import Fitted, Room, fitted
from app.conversation.history import arranged
from app.conversation.tokens import messages_tokens
from app.domain.messages import Message
from app.turn.delivery import emitter
from app.turn.gmi.live import remembered
from app.turn.preparation.draft import PhaseServices, TurnDraft
from app.turn.preparation.feeling import notice, wants
from app.turn.preparation.knowledge import gather
from app.turn.preparation.prompt import room_beside, with_context, written
from app.turn.preparation.reading import entries
from app.turn.preparation.room import room_of


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Build the prompt, and the history, the input last, within limit and token budget; announce the routing block.

    Raises TooLargeError when the input does not fit into what the model's window leaves.
    """
    _, gmi, new = draft.chosen()
    policy = draft.history_policy(services.policy)
    # Where the conversation keeps nothing, what its GMI remembers is not replaced (R128).
    kept = [*remembered(gmi), new.message]
    if services.policy.persistence:
        kept = arranged(await entries(draft, services, draft.summary, policy), draft.summary, policy)
    if wants(draft.chosen()[0]):
        await notice(draft, services)
    await gather(draft, services)
    room = draft.room or room_of(draft, services)  # what the prompt takes of it is counted when it is written
    if room.counter.exact:
        # A tokenizer takes its time and remembers what it counted; other streams go on meanwhile.
        await asyncio.to_thread(_counted, draft, room, kept)
    draft.prompt = written(draft, room)
    room = room_beside(draft.prompt, room)
    kept = with_context(kept, draft.prompt)
    own = draft.chosen()[0].conversation_context.max_tokens
    budget = room.budget if own is None else min(room.budget, own)
    told = fitted(kept, budget=budget, head=policy.head, counter=room.counter)
    room.check_size(told.tokens, "The turn")
    if told.repairs:
        structlog.get_logger(__name__).warning("history.repaired", repairs=told.repairs, **told.faults)
        services.metrics.repaired(told.faults)
    draft.history = told.messages
    draft.room = room
    draft.routing["history"] = _report(kept, told, room)
    draft.routing["prompt"] = report = draft.prompt.report()
    if report["cut"]:
        structlog.get_logger(__name__).warning("prompt.cut", turn_id=draft.turn_id, model=room.model, **report["cut"])
    services.emit(emitter.metadata_update(draft.routing))
    services.emit(emitter.lifecycle("executing", "degraded" if draft.degraded else "ok", services.clock.now()))


def _counted(draft: TurnDraft, room: Room, kept: Sequence[Message]) -> None:
    written(draft, room)
    messages_tokens(kept, room.counter)


def _report(kept: list[Message], told: Fitted, room: Room) -> dict[str, Any]:
    return {
        "messages": len(told.messages),
        "cut_to_fit": max(0, len(kept) - len(told.messages)),
        "repairs": told.repairs,
        "tokens": room.sizes(told.tokens),
    }
