"""Phase 6: how the turn is executed, and the first word of its life on the stream."""

from app.turn.delivery import emitter
from app.turn.preparation.draft import PhaseServices, TurnDraft


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Say that the turn is planned."""
    draft.routing["adaptive_execution"] = None
    services.emit(emitter.lifecycle("planned", "ok", services.clock.now(), {"planner_version": "none"}))
