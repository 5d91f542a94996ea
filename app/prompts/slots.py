"""What a prompt is made of: the persona, the session, the language, and the slots that the phases fill."""

from dataclasses import field

from app.domain.frozen import dataclass
from app.domain.language import Language
from app.domain.persona import Persona
from app.domain.session import FIRST_MOOD, SessionState


@dataclass(frozen=True, slots=True)
class Slots:
    """What preparation has found for the prompt; a slot that is empty adds nothing.

    A slot with entries has the most important first: where there is no room for all, the last ones are left out.
    `profile` are the instructions of the chosen prompt profile, `skills` what the session's skills say, `capabilities`
    what the planner has found, one entry for each. `memory` and `retrieved` are what was said or written by others:
    they are told as data, beside the user's input, and never as the system's word.
    """

    profile: str = ""
    skills: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    retrieved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptInput:
    """All that the prompt of one turn depends on; the same input makes the same text.

    `signals` are names of what was noticed of the conversation, such as that the user is frustrated.
    """

    persona: Persona
    session: SessionState = field(default_factory=SessionState)
    language: Language | None = None
    slots: Slots = field(default_factory=Slots)
    signals: frozenset[str] = frozenset()

    @property
    def mood(self) -> str:
        """The mood of the session, else the one that the persona begins with."""
        return self.session.mood or self.persona.mood_adaptation.default_mood or FIRST_MOOD

    @property
    def answers_in(self) -> str | None:
        """The language that is answered in, where that is settled."""
        return self.language.target if self.language is not None else self.persona.default_language
