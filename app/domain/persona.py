"""A persona: who answers, with which model and which of the runtime's tools."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from app.domain.tools import FailureMode
from app.domain.turn import Effort, OnExpiry


@dataclass(frozen=True, slots=True)
class PersonaOptions:
    """Options of the model call; None is not sent. `extra_body` goes to the model as it is."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    reasoning_effort: Effort | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TraceLimits:
    """How many entries a session's reasoning trace keeps and how long their messages are; None leaves it as it is."""

    max_entries: int | None = None
    max_message_length: int | None = None


@dataclass(frozen=True, slots=True)
class ConversationContext:
    """How many messages of a conversation are told; None leaves it to the settings."""

    max_messages: int | None = None


@dataclass(frozen=True, slots=True)
class SelfImprovement:
    """What a persona may change of itself in a session, by its tools: at most `most_changes` times.

    A temperature between the two; preferences of these names; these skills, of which `*` means all.
    """

    least_temperature: float | None = None
    most_temperature: float | None = None
    preferences: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    most_changes: int = 10

    @property
    def is_allowed(self) -> bool:
        """Tell whether it may change anything at all."""
        return self != SelfImprovement(most_changes=self.most_changes)


@dataclass(frozen=True, slots=True)
class Persona:
    """A persona as its file says. Without `model`, the runtime's default model answers."""

    id: str
    name: str
    system_prompt: str
    description: str = ""
    model: str | None = None
    tools: tuple[str, ...] = ()
    options: PersonaOptions = field(default_factory=PersonaOptions)
    max_tool_iterations: int | None = None
    pause_ttl_seconds: float | None = None
    on_expiry: OnExpiry = "close"
    tool_failure_mode: FailureMode = "fail_open"
    guardrails: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    self_improvement: SelfImprovement = field(default_factory=SelfImprovement)
    reasoning_trace: TraceLimits = field(default_factory=TraceLimits)
    conversation_context: ConversationContext = field(default_factory=ConversationContext)

    def to_json(self) -> dict[str, Any]:
        """Give the form that a snapshot keeps."""
        shown = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        parts = {
            name: {entry.name: getattr(shown[name], entry.name) for entry in fields(kind)}
            for name, kind in _PARTS.items()
        }
        return {**shown, **{name: list(shown[name]) for name in _LISTS}, **parts}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Persona":
        """Read the form that a snapshot keeps; keys that are not known are left out."""
        known = {entry.name for entry in fields(cls)}
        values = {name: value for name, value in stored.items() if name in known}
        lists = {name: tuple(stored.get(name) or ()) for name in _LISTS}
        parts = {
            name: kind(**{entry.name: _value(given[entry.name]) for entry in fields(kind) if entry.name in given})
            for name, kind in _PARTS.items()
            for given in [stored.get(name) or {}]
        }
        return cls(**{**values, **lists, **parts})


def _value(stored: Any) -> Any:
    return tuple(stored) if isinstance(stored, list) else stored


_LISTS: Final = ("tools", "guardrails", "skills")
_PARTS: Final[Mapping[str, type[Any]]] = {
    "options": PersonaOptions,
    "self_improvement": SelfImprovement,
    "reasoning_trace": TraceLimits,
    "conversation_context": ConversationContext,
}
"""The fields that are mappings of their own."""
