"""Phase 11: long-term memory. There is none to recall from."""

from app.turn.preparation.draft import PhaseServices, TurnDraft


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Note that nothing was looked up."""
    del services
    draft.routing["long_term_memory_retrieval"] = None
