"""A persona's traits in one session, as hosts read and change them: kept with the session, like its mood."""

from collections.abc import Callable, Mapping

from app.domain.errors import InvalidStateError
from app.domain.persona import Persona
from app.domain.session import SessionKey, SessionState, bounded
from app.domain.traits import changed_traits, told_traits
from app.domain.turn import Caller
from app.domain.views import TraitsView
from app.store import sessions
from app.store.database import Database
from app.turn.gmi.personas import Personas


class Traits:
    """Answers for the door. What is changed holds on each replica, from the session's next turn on."""

    def __init__(
        self, database: Database, personas: Personas, admit: Callable[[Caller], Caller], *, persistence: bool
    ) -> None:
        """Keep the parts; each caller passes `admit` first."""
        self._database = database
        self._personas = personas
        self._admit = admit
        self._persistence = persistence

    async def of_session(self, caller: Caller, session_id: str, persona_id: str | None) -> TraitsView:
        """Give the traits; those of a session of which nothing is kept are the persona's own."""
        persona, key = self._persona(persona_id), SessionKey.of(self._admit(caller), session_id)
        async with self._database.transaction() as connection:
            state = await sessions.find(connection, key)
        return _view(session_id, persona, state.traits)

    async def change(
        self, caller: Caller, session_id: str, persona_id: str | None, given: Mapping[str, float | None]
    ) -> TraitsView:
        """Change traits; a null takes one back. All of them are changed, or none.

        Raises InvalidStateError where nothing is kept of sessions, and ValidationError for what the persona's file
        does not allow.
        """
        persona, key = self._persona(persona_id), SessionKey.of(self._admit(caller), session_id)
        if not self._persistence:
            message = "Nothing is kept of sessions while FERMATA_ENABLE_CONVERSATIONAL_PERSISTENCE is false."
            raise InvalidStateError(message)
        changed_traits(persona, {}, given)  # what may not be makes no row either
        async with self._database.transaction() as connection:
            state = await sessions.hold(connection, key)
            traits = changed_traits(persona, state.traits, given)
            await sessions.write(connection, key, {"mind": _mind(state, traits)}, seen=state.version)
        return _view(session_id, persona, traits)

    def _persona(self, persona_id: str | None) -> Persona:
        return self._personas.find(persona_id or self._personas.default_id)


def _mind(state: SessionState, traits: Mapping[str, float]) -> dict[str, object]:
    """Give the part of the mind that changes, if all of it is not too much to keep."""
    bounded({**state.mind, "traits": traits}, "mind")
    return {"traits": traits}


def _view(session_id: str, persona: Persona, kept: Mapping[str, float]) -> TraitsView:
    return TraitsView(
        session_id=session_id,
        persona_id=persona.id,
        traits=told_traits(persona, kept),
        changed=tuple(sorted(name for name in persona.personality_traits if name in kept)),
    )
