"""Phase 1: an input that can't be a turn is refused, before a GMI is acquired (R247)."""

from app.domain.errors import ValidationError
from app.turn.preparation.draft import PhaseServices, TurnDraft


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Refuse a turn without a persona or without input."""
    del services
    if not draft.turn.persona_id:
        message = "The turn names no persona and there is no default one; set persona_id."
        raise ValidationError(message)
    content = draft.turn.input
    if not content or (isinstance(content, str) and not content.strip()):
        message = "The turn has no input; send a text that is not blank, or at least one part."
        raise ValidationError(message)
