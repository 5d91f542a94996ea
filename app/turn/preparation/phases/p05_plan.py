"""Phase 5: the turn's plan. There is no planner yet: every tool of the persona and of the host is offered (R250)."""

from app.turn.preparation.draft import PhaseServices, TurnDraft


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Note that nothing was planned."""
    del services
    draft.routing["turn_planning"] = None
