"""Phase 2: the session's GMI for the persona, and the model it will use (R248)."""

from typing import Any

from app.domain.errors import ValidationError
from app.domain.persona import Persona
from app.providers.gateway import Route
from app.turn.preparation.draft import PhaseServices, TurnDraft


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Choose persona, GMI and model. Raises PersonaNotFoundError or ProviderUnavailableError."""
    turn = draft.turn
    persona = services.personas.find(turn.persona_id or "")
    _check_modalities(persona, turn.input)
    draft.persona = persona
    draft.model = turn.options.model or persona.model or services.policy.default_model
    services.gateway.check(Route(draft.model, api_keys=turn.provider_api_keys))
    draft.gmi = await services.gmis.acquire(turn.caller, turn.session_id, persona.id)


def _check_modalities(persona: Persona, given: str | list[dict[str, Any]]) -> None:
    """Raise ValidationError for a part that the persona takes none of."""
    if not persona.input_modalities or isinstance(given, str):
        return
    kinds = {str(part.get("type")).removesuffix("_url") for part in given}
    refused = sorted(kinds - set(persona.input_modalities))
    if refused:
        message = (
            f"The persona {persona.id!r} takes no {', '.join(refused)}; its inputs are made of: "
            f"{', '.join(persona.input_modalities)}."
        )
        raise ValidationError(message)
