"""Phase 7: the organization, and what long-term memory may be used."""

from app.turn.preparation.draft import PhaseServices, TurnDraft


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Note the organization; there is no long-term memory to allow or forbid."""
    del services
    draft.routing["organization_id"] = draft.turn.caller.organization_id or None
    draft.routing["long_term_memory_policy"] = None
