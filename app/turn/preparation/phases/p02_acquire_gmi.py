"""Phase 2: the session's GMI for the persona, and the model it will use (R248)."""

from app.providers.gateway import Route
from app.turn.preparation.draft import PhaseServices, TurnDraft


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Choose persona, GMI and model. Raises PersonaNotFoundError or ProviderUnavailableError."""
    turn = draft.turn
    persona = services.personas.find(turn.persona_id or "")
    draft.persona = persona
    draft.model = turn.options.model or persona.model or services.policy.default_model
    services.gateway.check(Route(draft.model, api_keys=turn.provider_api_keys))
    draft.gmi = await services.gmis.acquire(turn.caller, turn.session_id, persona.id)
