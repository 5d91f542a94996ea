"""Phase 10: the prompt profile. None is defined: the persona's prompt is used as it is."""

from app.turn.preparation.draft import PhaseServices, TurnDraft


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Note that no profile was chosen."""
    del services
    draft.routing["prompt_profile"] = None
