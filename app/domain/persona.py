"""A persona: who answers, with which model and which of the runtime's tools."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, field, fields
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeVar

from app.domain.documents import MMR_LAMBDA, SearchStrategy
from app.domain.frozen import dataclass
from app.domain.memory import MemoryScope
from app.domain.tools import FailureMode
from app.domain.turn import Effort, OnExpiry

ElementType = Literal[
    "system_instruction_addon",
    "behavioral_guidance",
    "task_specific_instruction",
    "error_handling_guidance",
    "ethical_guideline",
    "output_format_spec",
    "reasoning_protocol",
    "few_shot_example",
    "user_prompt_augmentation",
]


@dataclass(frozen=True, slots=True)
class PersonaOptions:
    """Options of the model call; None is not sent. `extra_body` and `extra_headers` go to the model as they are."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    reasoning_effort: Effort | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    extra_headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class TraceLimits:
    """How many entries a session's reasoning trace keeps and how long their messages are; None leaves it as it is."""

    max_entries: int | None = None
    max_message_length: int | None = None


@dataclass(frozen=True, slots=True)
class ConversationContext:
    """How many messages of a conversation are told, and how many tokens of them; None leaves it to the settings."""

    max_messages: int | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class MoodAdaptation:
    """Whether a persona shows its mood, the one that it begins with, those that it may have, and what each one says.

    Without `allowed_moods` it may have any. A mood without a prompt of its own is told in words of the service.
    """

    enabled: bool = False
    default_mood: str | None = None
    allowed_moods: tuple[str, ...] = ()
    mood_prompts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Criteria:
    """When a contextual element applies: all that is given must hold. `task_hint` need only be part of the task's."""

    mood: str | None = None
    user_skill_level: str | None = None
    task_hint: str | None = None
    task_complexity: str | None = None
    language: str | None = None
    conversation_signals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextualElement:
    """A text that is part of the prompt while its criteria hold, at the place that its priority gives it.

    One of the type `user_prompt_augmentation` stands behind the user's words instead.
    """

    id: str
    type: ElementType
    content: str
    criteria: Criteria = field(default_factory=Criteria)
    priority: int = 100


@dataclass(frozen=True, slots=True)
class SentimentTracking:
    """Whether a user's inputs are scored, from -1 to 1, and from when on something is made of it.

    `consecutive_turns` of one kind are an event also where none is strong. `presets` are metaprompts that ship.
    """

    enabled: bool = False
    history_window: int = 10
    frustration_threshold: float = -0.3
    satisfaction_threshold: float = 0.3
    consecutive_turns: int = 2
    presets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetaPrompt:
    """What a persona asks itself behind a turn: each `interval_turns` turns, at an event, or when a turn asks for it.

    `prompt` may have names in double braces. Without `model`, the model for small work answers.
    """

    id: str
    prompt: str
    trigger: Literal["turn_interval", "event_based", "manual"]
    interval_turns: int | None = None
    event_name: str | None = None
    model: str | None = None
    max_output_tokens: int = 512
    temperature: float = 0.3


@dataclass(frozen=True, slots=True)
class SessionStart:
    """What a session with the persona begins with, until something else is known: of the user, and of the task.

    `imprints` are notes as metaprompts make them: told as data, and gone over by one that is made under the same key.
    """

    user_context: Mapping[str, Any] = field(default_factory=dict)
    task_context: Mapping[str, Any] = field(default_factory=dict)
    imprints: Mapping[str, Any] = field(default_factory=dict)


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
class RetrievalUse:
    """Which documents a persona's turns look in, and when.

    It is done for every input, or for one that has one of the words or that one of the intents was noticed in; and when
    a tool has failed that `on_tool_failure` names (`*` stands for any letters), before the model goes on. `collections`
    None are all collections, an empty list is none. `strategy`, `mmr_lambda` and `metadata` are as in a search. With
    `keeps_turns` what was asked and answered becomes a document, whole or as a summary, which the user alone finds, in
    all conversations or in that one.
    """

    enabled: bool = False
    collections: tuple[str, ...] | None = None
    top_k: int = 5
    strategy: SearchStrategy = "hybrid"
    mmr_lambda: float = MMR_LAMBDA
    metadata: Mapping[str, Any] = field(default_factory=dict)
    on_user_query: bool = True
    on_keywords: tuple[str, ...] = ()
    on_intents: tuple[str, ...] = ()
    on_tool_failure: tuple[str, ...] = ()
    keeps_turns: Literal["whole", "summary"] | None = None
    turns_collection: str = "turns"
    turns_scope: Literal["user", "conversation"] = "user"

    @property
    def keeps(self) -> bool:
        """Tell whether turns become documents."""
        return self.enabled and self.keeps_turns is not None

    def is_due(self, text: str, intents: Collection[str] = ()) -> bool:
        """Tell whether documents are looked in for an input in which these intents were noticed."""
        if not self.enabled or not text.strip():
            return False
        said = text.casefold()
        noticed = {intent.casefold() for intent in intents}
        return (
            self.on_user_query
            or any(word.casefold() in said for word in self.on_keywords)
            or any(intent.casefold() in noticed for intent in self.on_intents)
        )

    def is_due_after(self, tool: str) -> bool:
        """Tell whether documents are looked in when the tool has failed."""
        return self.enabled and any(fnmatchcase(tool, name) for name in self.on_tool_failure)


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Whether a persona remembers, for whom (never for other users), and what of a turn; so many traces are told.

    `also_recalls` are further scopes in which it looks, and writes nothing.
    """

    enabled: bool = False
    scope: Literal["conversation", "user", "persona"] = "user"
    also_recalls: tuple[MemoryScope, ...] = ()
    top_k: int = 5
    remembers_user: bool = True
    remembers_replies: bool = True


@dataclass(frozen=True, slots=True)
class Persona:
    """A persona as its file says. Without `model`, the runtime's default model answers."""

    id: str
    name: str
    system_prompt: str
    description: str = ""
    model: str | None = None
    tools: tuple[str, ...] = ()
    allowed_capabilities: tuple[str, ...] = ()
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
    version: str | None = None
    is_public: bool = True
    default_language: str | None = None
    input_modalities: tuple[str, ...] = ()
    turn_timeout_seconds: float | None = None
    prompt_shares: Mapping[str, float] = field(default_factory=dict)
    personality_traits: Mapping[str, float] = field(default_factory=dict)
    mood_adaptation: MoodAdaptation = field(default_factory=MoodAdaptation)
    hard_limits: tuple[str, ...] = ()
    contextual_elements: tuple[ContextualElement, ...] = ()
    session_start: SessionStart = field(default_factory=SessionStart)
    sentiment_tracking: SentimentTracking = field(default_factory=SentimentTracking)
    meta_prompts: tuple[MetaPrompt, ...] = ()
    retrieval: RetrievalUse = field(default_factory=RetrievalUse)
    memory: MemoryUse = field(default_factory=MemoryUse)

    def to_json(self) -> dict[str, Any]:
        """Give the form that a snapshot keeps."""
        shown: dict[str, Any] = _plain(asdict(self))
        return shown

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Persona":
        """Read the form that a snapshot keeps; keys that are not known are left out."""
        return _read(cls, stored)


def _plain(value: Any) -> Any:
    """Give the value with lists for its tuples."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


T = TypeVar("T")


def _read(kind: type[T], stored: Mapping[str, Any]) -> T:
    """Make a value of its stored form: parts are mappings, entries are lists of mappings, other lists are tuples."""
    values: dict[str, Any] = {}
    for name in (entry.name for entry in fields(kind) if entry.name in stored):  # type: ignore[arg-type]
        given = stored[name]
        if name in _PARTS:
            given = _read(_PARTS[name], given or {})
        elif name in _ENTRIES:
            given = tuple(_read(_ENTRIES[name], entry) for entry in given or ())
        elif isinstance(given, list):
            given = tuple(given)
        values[name] = given
    return kind(**values)


_PARTS: Final[Mapping[str, type[Any]]] = {
    "options": PersonaOptions,
    "self_improvement": SelfImprovement,
    "reasoning_trace": TraceLimits,
    "conversation_context": ConversationContext,
    "mood_adaptation": MoodAdaptation,
    "criteria": Criteria,
    "session_start": SessionStart,
    "sentiment_tracking": SentimentTracking,
    "retrieval": RetrievalUse,
    "memory": MemoryUse,
}
"""The fields that are mappings of their own."""

_ENTRIES: Final[Mapping[str, type[Any]]] = {
    "contextual_elements": ContextualElement,
    "meta_prompts": MetaPrompt,
}
"""The fields that are lists of such mappings."""
