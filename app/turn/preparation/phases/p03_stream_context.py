"""Phase 3: from here on the turn has a voice; what it says before it is accepted waits for T1 (R249)."""

from app.turn.delivery import emitter
from app.turn.preparation.draft import PhaseServices, TurnDraft


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Name the stream's GMI and persona, and report the first progress."""
    if draft.persona is None or draft.gmi is None:
        message = "phase 2 must run first"
        raise RuntimeError(message)
    services.name(draft.gmi.instance_id, draft.persona)
    services.emit(emitter.system_progress(f"{draft.persona.name} is ready.", 10, "PERSONA_READY"))
