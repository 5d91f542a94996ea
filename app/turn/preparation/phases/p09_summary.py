"""Phase 9: the rolling summary. It is off: the history is sent as the window leaves it (R333)."""

from app.turn.preparation.draft import PhaseServices, TurnDraft


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Note that there is no summary."""
    del services
    draft.routing["rolling_summary"] = None
