"""Long-term memory as values: whose it is, what is looked for, and what is found.

A scope says who shares a trace: one conversation, one user in all conversations, one user with one persona, or all
users of an organization. Nothing is ever shared between organizations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal
from uuid import UUID

from app.domain.frozen import dataclass
from app.domain.ids import row_key
from app.domain.turn import Caller

MemoryScope = Literal["conversation", "user", "persona", "organization"]
MemoryType = Literal["episodic", "semantic"]
SCOPES: Final[tuple[MemoryScope, ...]] = ("conversation", "user", "persona", "organization")


@dataclass(frozen=True, slots=True)
class MemoryPlace:
    """Where a turn stands: for whom it is, in which conversation, and who answers."""

    caller: Caller
    conversation_id: str
    persona_id: str

    @property
    def conversation(self) -> UUID:
        """The conversation's row key."""
        return row_key(self.caller.organization_id, self.conversation_id)

    def scope_id(self, scope: MemoryScope) -> str:
        """Give the name of a scope at this place, within the organization."""
        match scope:
            case "conversation":
                return self.conversation.hex
            case "user":
                return self.caller.user_id
            case "persona":
                return f"{self.caller.user_id}::{self.persona_id}"
            case "organization":
                return ""


@dataclass(frozen=True, slots=True)
class Recall:
    """What to look for. `categories` None takes every category, an empty list none; `top_k` is for each scope.

    `mood` is the agent's mood as valence from -1 to 1: what was felt alike is found a little sooner.
    """

    place: MemoryPlace
    query: str
    scopes: Sequence[MemoryScope] = ("user",)
    categories: Sequence[str] | None = None
    top_k: int = 8
    max_characters: int = 4200
    mood: float = 0.0


@dataclass(frozen=True, slots=True)
class Memory:
    """One thing that is remembered. `category` is free, such as `facts`; `score` is only there where it was found.

    `unverified` is what a model has concluded, too long ago to be told as if it were so.
    """

    trace_id: str
    scope: MemoryScope
    type: MemoryType
    content: str
    category: str | None = None
    source: str = "user_statement"
    score: float | None = None
    unverified: bool = False


@dataclass(frozen=True, slots=True)
class Recalled:
    """What was found, the best first; `text` is how a prompt tells it, and empty when there is nothing.

    `feedback` is what the memory wants to be given back with the reply, if it learns from replies; None wants nothing.
    """

    memories: tuple[Memory, ...] = ()
    text: str = ""
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    feedback: Any = None


@dataclass(frozen=True, slots=True)
class NewMemory:
    """Something to remember. `valence` and `arousal` (-1 to 1) are of the moment, `sentiment` is the content's own.

    `source` is where it comes from: `user_statement`, `agent_inference`, `tool`, `memory_summary`. With `explicit`,
    somebody asked for it to be remembered, and it begins at full strength. `traits` are those of who remembers, from 0
    to 1: they weigh what is new, what is a procedure and what is felt.
    """

    place: MemoryPlace
    scope: MemoryScope
    content: str
    type: MemoryType = "episodic"
    source: str = "user_statement"
    category: str | None = None
    explicit: bool = False
    valence: float = 0.0
    arousal: float = 0.0
    sentiment: float = 0.0
    traits: Mapping[str, float] = field(default_factory=dict)
