"""Session overrides and skills: laid over each turn of a session before it starts (R11, R12), and changed.

A request's own options win over the session's. Nothing of this changes a persona, which other sessions share.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from app.domain.errors import InvalidStateError, ValidationError
from app.domain.frozen import dataclass
from app.domain.overrides import OPTIONS, Overrides, OverridesChange
from app.domain.persona import Persona
from app.domain.session import SessionKey
from app.domain.skills import Skill, skill_context
from app.domain.turn import Caller, TurnInput
from app.skills.folder import Skills
from app.store import overrides as store
from app.store.database import Database


@dataclass(frozen=True, slots=True)
class OverridesPolicy:
    """Whether sessions have overrides at all, and whether anything is kept of sessions."""

    on: bool = False
    persistence: bool = True


class SessionOverrides:
    """Reads and changes what sessions change about their turns."""

    def __init__(self, database: Database, skills: Skills, policy: OverridesPolicy) -> None:
        """Keep the parts; where overrides are off, a turn asks the database nothing."""
        self._database = database
        self._policy = policy
        self.skills = skills

    @property
    def on(self) -> bool:
        """Tell whether sessions have overrides."""
        return self._policy.on

    async def lay_over(self, turn: TurnInput, persona: Persona) -> TurnInput:
        """Give the turn as its session has it; the same object when there is nothing to add."""
        if not self._policy.on:
            return turn
        kept = await self.find(turn.caller, turn.session_id)
        given = {name: kept.options[name] for name in OPTIONS if name in kept.options}
        given = {name: value for name, value in given.items() if getattr(turn.options, name) is None}
        enabled = self.enabled(kept, persona)
        told = skill_context(enabled, self._known(kept.disabled_skills))
        if not given and not kept.preferences and told is None:
            return turn
        return replace(
            turn,
            options=replace(turn.options, **given),
            session_preferences=kept.preferences,
            skill_context=told,
            enabled_skills=tuple(skill.id for skill in enabled),
            disabled_skills=kept.disabled_skills,
        )

    def enabled(self, kept: Overrides, persona: Persona) -> list[Skill]:
        """Give the skills that are on: the session's own, then the persona's, without those that are off."""
        names = dict.fromkeys([*kept.enabled_skills, *persona.skills])
        found = (self.skills.find(name) for name in names)
        return [skill for skill in found if skill is not None and skill.id not in kept.disabled_skills]

    async def find(self, caller: Caller, session_id: str) -> Overrides:
        """Give a session's overrides; those of a session that nothing is kept of are empty."""
        async with self._database.statement() as connection:
            return await store.find(connection, SessionKey.of(caller, session_id))

    async def change(
        self,
        caller: Caller,
        session_id: str,
        change: OverridesChange,
        *,
        check: Callable[[Overrides], None] | None = None,
    ) -> Overrides:
        """Change a session's overrides; `check` may refuse by what they are, and makes it the persona's own change.

        Raises InvalidStateError where sessions have none, ValidationError for a skill that there is not, and
        TooLargeError.
        """
        self.check_on()
        unknown = [name for name in (*change.enable_skills, *change.disable_skills) if self.skills.find(name) is None]
        if unknown:
            names = ", ".join(map(repr, unknown))
            message = f"There are no skills named {names}; GET /v1/skills lists those there are."
            raise ValidationError(message, skills=unknown)

        def work(kept: Overrides) -> Overrides:
            if check is not None:
                check(kept)
            return kept.changed(change, own=check is not None)

        async with self._database.transaction() as connection:
            return await store.change(connection, SessionKey.of(caller, session_id), work)

    async def reset(self, caller: Caller, session_id: str) -> None:
        """Take a session's overrides back, all of them."""
        self.check_on()
        async with self._database.transaction() as connection:
            await store.reset(connection, SessionKey.of(caller, session_id))

    def check_on(self) -> None:
        """Raise InvalidStateError where sessions have no overrides."""
        if not self._policy.on:
            message = "Sessions have no overrides here: set FERMATA_SESSION_OVERRIDES or FERMATA_SKILLS_DIR."
            raise InvalidStateError(message)
        if not self._policy.persistence:
            message = "Nothing is kept of sessions while FERMATA_ENABLE_CONVERSATIONAL_PERSISTENCE is false."
            raise InvalidStateError(message)

    def _known(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if self.skills.find(name) is not None]
