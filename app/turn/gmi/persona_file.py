"""One persona's file, YAML or JSON: what it may hold, and sentences that name file and field for what it may not."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)

from app.domain.documents import MMR_LAMBDA, SearchStrategy
from app.domain.errors import ConfigurationError
from app.domain.memory import MemoryScope
from app.domain.persona import ElementType, Persona
from app.domain.session import MOODS
from app.domain.tools import FailureMode
from app.domain.traits import MOST_TRAITS
from app.domain.turn import Effort, OnExpiry
from app.prompts.sections import SECTIONS
from app.turn.gmi.metaprompts import LARGEST_IMPRINT, MOST_IMPRINTS, is_imprint
from app.turn.gmi.presets import PRESETS
from app.turn.gmi.sentiment import EventName
from app.turn.gmi.session import MOST_ENTRIES
from app.turn.gmi.soul import soul_fields

RESERVED: Final = frozenset({"system_admin", "internal_default"})
_SEMVER: Final = r"^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$"
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times as quick where the package was built with it."""

_LANGUAGE: Final = r"^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$"


def _once(names: list[str]) -> list[str]:
    """Refuse names that are there twice."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        message = f"{', '.join(twice)} is named twice"
        raise ValueError(message)
    return names


Names = Annotated[list[str], AfterValidator(_once)]
Share = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Text = Annotated[str, Field(min_length=1, max_length=20_000)]


class InFile(BaseModel):
    """What a file may hold; fields that are not known are refused."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


class OptionsInFile(InFile):
    """Options of the model call, as a file gives them."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    reasoning_effort: Effort | None = None
    extra_body: dict[str, Any] = {}
    extra_headers: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")], Annotated[str, Field(pattern=r"^[\x20-\x7e]*$")]
    ] = {}


class TraceInFile(InFile):
    """Limits of the reasoning trace, as a file gives them."""

    max_entries: int | None = Field(default=None, ge=1, le=MOST_ENTRIES)
    max_message_length: int | None = Field(default=None, ge=1, le=100_000)


class ContextInFile(InFile):
    """What of a conversation is told, as a file gives it."""

    max_messages: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)


class SelfImprovementInFile(InFile):
    """What a persona may change of itself, as a file gives it."""

    least_temperature: float | None = Field(default=None, ge=0, le=2)
    most_temperature: float | None = Field(default=None, ge=0, le=2)
    preferences: list[str] = []
    skills: list[str] = []
    most_changes: int = Field(default=10, ge=1, le=1000)


class MoodInFile(InFile):
    """How a persona shows its mood, as a file gives it."""

    enabled: bool = False
    default_mood: str | None = None
    allowed_moods: list[str] = []
    mood_prompts: dict[str, Text] = {}

    @model_validator(mode="after")
    def _moods_are_moods(self) -> "MoodInFile":
        named = [*self.allowed_moods, *self.mood_prompts, *([self.default_mood] if self.default_mood else [])]
        unknown = sorted({mood for mood in named if mood not in MOODS})
        if unknown:
            message = f"there are no moods {', '.join(unknown)}; the moods are {', '.join(MOODS)}"
            raise ValueError(message)
        if self.default_mood and self.allowed_moods and self.default_mood not in self.allowed_moods:
            message = f"default_mood: {self.default_mood!r} is not one of allowed_moods"
            raise ValueError(message)
        return self


class CriteriaInFile(InFile):
    """When a contextual element applies, as a file gives it."""

    mood: str | None = None
    user_skill_level: str | None = None
    task_hint: str | None = None
    task_complexity: str | None = None
    language: str | None = None
    conversation_signals: list[str] = []

    @model_validator(mode="after")
    def _asks_for_something(self) -> "CriteriaInFile":
        if self == CriteriaInFile.model_construct():
            message = "an element without criteria never applies; give at least one"
            raise ValueError(message)
        return self


class ElementInFile(InFile):
    """A contextual element, as a file gives it."""

    id: Name
    type: ElementType
    content: Text
    criteria: CriteriaInFile
    priority: int = Field(default=100, ge=2, le=999)


class StartInFile(InFile):
    """What a session begins with, as a file gives it."""

    user_context: dict[str, Any] = {}
    task_context: dict[str, Any] = {}
    imprints: dict[str, JsonValue] = Field(default={}, max_length=MOST_IMPRINTS)

    @field_validator("imprints")
    @classmethod
    def _can_be_kept(cls, notes: dict[str, JsonValue]) -> dict[str, JsonValue]:
        wrong = sorted(key for key in notes if not is_imprint(key, notes[key]))
        if wrong:
            message = (
                f"{', '.join(wrong)}: a note has a name of at most 64 letters, digits and . _ - and a value of at most "
                f"{LARGEST_IMPRINT} bytes of JSON"
            )
            raise ValueError(message)
        return notes


class SentimentInFile(InFile):
    """Whether and how inputs are scored, as a file gives it."""

    enabled: bool = False
    history_window: int = Field(default=10, ge=1, le=20)
    frustration_threshold: float = Field(default=-0.3, ge=-1, le=0)
    satisfaction_threshold: float = Field(default=0.3, ge=0, le=1)
    consecutive_turns: int = Field(default=2, ge=1, le=20)
    presets: list[str] = []

    @field_validator("presets")
    @classmethod
    def _ship(cls, names: list[str]) -> list[str]:
        unknown = sorted(set(names) - {*PRESETS, "all"})
        if unknown:
            message = f"there is no preset {', '.join(unknown)}; they are all, {', '.join(PRESETS)}"
            raise ValueError(message)
        return names


class MetaPromptInFile(InFile):
    """A metaprompt, as a file gives it."""

    id: Name
    prompt: Text
    trigger: Literal["turn_interval", "event_based", "manual"]
    interval_turns: int | None = Field(default=None, ge=1, le=1000)
    event_name: EventName | None = None
    model: str | None = Field(default=None, pattern=r"^[^:\s]+:\S+$")
    max_output_tokens: int = Field(default=512, ge=1, le=8192)
    temperature: float = Field(default=0.3, ge=0, le=2)

    @model_validator(mode="after")
    def _has_its_trigger(self) -> "MetaPromptInFile":
        needed = {"turn_interval": "interval_turns", "event_based": "event_name"}.get(self.trigger)
        if needed is not None and getattr(self, needed) is None:
            message = f"a metaprompt whose trigger is {self.trigger} needs {needed}"
            raise ValueError(message)
        return self


class RetrievalInFile(InFile):
    """Which documents are looked in, as a file gives it."""

    enabled: bool = True
    collections: Names | None = None
    top_k: int = Field(default=5, ge=1, le=50)
    strategy: SearchStrategy = "hybrid"
    mmr_lambda: Share = MMR_LAMBDA
    metadata: dict[str, JsonValue] = {}
    keeps_turns: Literal["whole", "summary"] | None = None
    turns_collection: Name = "turns"
    turns_scope: Literal["user", "conversation"] = "user"
    on_user_query: bool = True
    on_keywords: list[str] = []
    on_intents: list[Name] = []
    on_tool_failure: list[Annotated[str, Field(min_length=1, max_length=64)]] = []


class MemoryInFile(InFile):
    """What is remembered, as a file gives it."""

    enabled: bool = True
    scope: Literal["conversation", "user", "persona"] = "user"
    also_recalls: list[MemoryScope] = []
    top_k: int = Field(default=5, ge=1, le=50)
    remembers_user: bool = True
    remembers_replies: bool = True


class PromptPartInFile(InFile):
    """One part of a system prompt that is written in parts."""

    content: Text
    priority: int = 0


class PersonaInFile(InFile):
    """What a persona file may hold."""

    id: Name
    name: str = Field(min_length=1, max_length=120)
    description: str = Field(default="", max_length=2000)
    version: str | None = Field(default=None, pattern=_SEMVER)
    is_public: bool = True
    default_language: str | None = Field(default=None, pattern=_LANGUAGE)
    model: str | None = Field(default=None, pattern=r"^[^:\s]+:\S+$")
    system_prompt: str = Field(min_length=1)
    hard_limits: list[Annotated[str, Field(min_length=1, max_length=1000)]] = Field(default=[], max_length=50)
    personality_traits: dict[Name, Share] = Field(default={}, max_length=MOST_TRAITS)
    mood_adaptation: MoodInFile = Field(default_factory=MoodInFile.model_construct)
    contextual_elements: list[ElementInFile] = Field(default=[], max_length=200)
    session_start: StartInFile = Field(default_factory=StartInFile.model_construct)
    tools: Names = []
    allowed_capabilities: Names = []
    options: OptionsInFile = Field(default_factory=OptionsInFile.model_construct)
    input_modalities: Names = []
    max_tool_iterations: int | None = Field(default=None, ge=1, le=50)
    turn_timeout_seconds: float | None = Field(default=None, gt=0)
    pause_ttl_seconds: float | None = Field(default=None, gt=0)
    on_expiry: OnExpiry = "close"
    tool_failure_mode: FailureMode = "fail_open"
    guardrails: Names = []
    skills: Names = []
    self_improvement: SelfImprovementInFile = Field(default_factory=SelfImprovementInFile.model_construct)
    reasoning_trace: TraceInFile = Field(default_factory=TraceInFile.model_construct)
    conversation_context: ContextInFile = Field(default_factory=ContextInFile.model_construct)
    prompt_shares: dict[str, Share] = {}
    sentiment_tracking: SentimentInFile = Field(default_factory=SentimentInFile.model_construct)
    meta_prompts: list[MetaPromptInFile] = Field(default=[], max_length=50)
    retrieval: RetrievalInFile = Field(default_factory=lambda: RetrievalInFile.model_construct(enabled=False))
    memory: MemoryInFile = Field(default_factory=lambda: MemoryInFile.model_construct(enabled=False))

    @field_validator("id")
    @classmethod
    def _is_free(cls, name: str) -> str:
        if name in RESERVED:
            message = f"{name!r} is reserved; choose another id"
            raise ValueError(message)
        return name

    @field_validator("system_prompt", mode="before")
    @classmethod
    def _joined(cls, given: Any) -> Any:
        """Read a prompt in parts, each with a priority, as the text that they make."""
        if not isinstance(given, list):
            return given
        parts = [PromptPartInFile.model_validate(part) for part in given]
        return "\n\n".join(part.content.strip() for part in sorted(parts, key=lambda part: part.priority))

    @field_validator("input_modalities")
    @classmethod
    def _modalities(cls, names: list[str]) -> list[str]:
        unknown = sorted(set(names) - {"text", "image", "audio", "file"})
        if unknown:
            message = f"there is no modality {', '.join(unknown)}; they are text, image, audio and file"
            raise ValueError(message)
        return names

    @field_validator("contextual_elements", "meta_prompts")
    @classmethod
    def _ids_differ(cls, entries: list[Any]) -> list[Any]:
        ids = [entry.id for entry in entries]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            message = f"two entries have the id {', '.join(twice)}"
            raise ValueError(message)
        return entries

    @field_validator("prompt_shares")
    @classmethod
    def _sections(cls, shares: dict[str, float]) -> dict[str, float]:
        cut = {section.name for section in SECTIONS if section.share is not None}
        unknown = sorted(set(shares) - cut)
        if unknown:
            message = f"{', '.join(unknown)}: no section with a share; they are {', '.join(sorted(cut))}"
            raise ValueError(message)
        return shares


def read_persona(path: Path) -> Persona:
    """Read a file, or a folder with a `SOUL.md`; ConfigurationError names it and the fields that are wrong."""
    content = soul_fields(path) if path.is_dir() else _fields(path)
    try:
        return _with_presets(Persona.from_json(PersonaInFile.model_validate(content).model_dump()))
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        message = f"{path.name}: {faults}"
        raise ConfigurationError(message) from None


def _fields(path: Path) -> dict[str, Any]:
    try:
        content: Any = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 - it is a safe one
    except OSError as error:
        message = f"{path.name}: the file can't be read: {error}"
        raise ConfigurationError(message) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        message = f"{path.name}: the file is not valid YAML: {' '.join(str(error).split())}"
        raise ConfigurationError(message) from None
    if not isinstance(content, dict):
        message = f"{path.name}: the file must hold one mapping with the persona's fields."
        raise ConfigurationError(message)
    return content


def _with_presets(persona: Persona) -> Persona:
    """Give the persona with the metaprompts that ship and that it names; those of its own come first and win."""
    tracking = persona.sentiment_tracking
    if not tracking.enabled or not tracking.presets:
        return persona
    own = {one.id for one in persona.meta_prompts}
    named = PRESETS if "all" in tracking.presets else tracking.presets
    return replace(
        persona, meta_prompts=(*persona.meta_prompts, *(PRESETS[name] for name in named if PRESETS[name].id not in own))
    )
