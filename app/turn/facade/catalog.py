"""What can be selected, and what sessions have selected: personas, skills, and the overrides of a session."""

from collections.abc import Callable

from app.domain.errors import NotFoundError
from app.domain.overrides import Overrides, OverridesChange
from app.domain.turn import Caller
from app.domain.views import OverridesView, PersonaView, SkillView
from app.turn.facade.overrides import SessionOverrides
from app.turn.gmi.personas import Personas


class Catalog:
    """Answers for the door; each caller passes `admit` first."""

    def __init__(
        self, personas: Personas, default_model: str, overrides: SessionOverrides, admit: Callable[[Caller], Caller]
    ) -> None:
        """Keep the parts."""
        self._personas = personas
        self._default_model = default_model
        self._overrides = overrides
        self._admit = admit

    def personas(self) -> tuple[PersonaView, ...]:
        """Give all personas that are listed; one that is not can be selected all the same."""
        return tuple(self.persona(persona.id) for persona in self._personas.all() if persona.is_public)

    def persona(self, persona_id: str) -> PersonaView:
        """Give one persona, or raise PersonaNotFoundError."""
        persona = self._personas.find(persona_id)
        return PersonaView(
            persona_id=persona.id,
            name=persona.name,
            description=persona.description,
            model=persona.model or self._default_model,
            tools=persona.tools,
            skills=persona.skills,
            is_default=persona.id == self._personas.default_id,
            version=persona.version,
            default_language=persona.default_language,
            input_modalities=persona.input_modalities,
        )

    def skills(self) -> tuple[SkillView, ...]:
        """Give all skills."""
        return tuple(
            SkillView(skill.id, skill.description, skill.category, skill.license)
            for skill in self._overrides.skills.all()
        )

    async def session_overrides(self, caller: Caller, session_id: str) -> OverridesView:
        """Give a session's overrides; NotFoundError where sessions have none. Those of a new session are empty."""
        if not self._overrides.on:
            message = "Sessions have no overrides here: FERMATA_SESSION_OVERRIDES and FERMATA_SKILLS_DIR are not set."
            raise NotFoundError(message)
        return _view(session_id, await self._overrides.find(self._admit(caller), session_id))

    async def change_session_overrides(self, caller: Caller, session_id: str, change: OverridesChange) -> OverridesView:
        """Change a session's overrides from its next turn on."""
        return _view(session_id, await self._overrides.change(self._admit(caller), session_id, change))

    async def reset_session_overrides(self, caller: Caller, session_id: str) -> None:
        """Take a session's overrides back, all of them."""
        await self._overrides.reset(self._admit(caller), session_id)


def _view(session_id: str, kept: Overrides) -> OverridesView:
    return OverridesView(
        session_id=session_id,
        options=kept.options,
        preferences=kept.preferences,
        enabled_skills=kept.enabled_skills,
        disabled_skills=kept.disabled_skills,
        own_changes=kept.own_changes,
    )
