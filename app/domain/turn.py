"""What comes into the runtime, and how an operation ends."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

from app.domain.feedback import Feedback
from app.domain.frozen import dataclass
from app.domain.ids import row_key
from app.domain.language import Detected, Language
from app.domain.tools import FailureMode, ToolResult, ToolSpec

Effort = Literal["none", "minimal", "low", "medium", "high"]
"""How much a model that reasons is to think."""

OnBusy = Literal["reject", "wait", "interrupt", "rollback"]
OnExpiry = Literal["close", "continue"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose call it is. The organization is empty where there are no organizations."""

    user_id: str
    organization_id: str = ""


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """Per-turn options; None means that persona or settings decide."""

    model: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_tool_iterations: int | None = None
    response_format: Mapping[str, Any] | None = None
    structured_reply: Mapping[str, Any] | None = None
    reasoning_effort: Effort | None = None
    turn_timeout_seconds: float | None = None
    mode: str | None = None
    tool_failure_mode: FailureMode | None = None
    tool_gate: Mapping[str, Any] | None = None
    custom_flags: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Give the stored form; what is not set is left out."""
        shown = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in shown.items() if value not in (None, {})}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "TurnOptions":
        """Read the stored form; unknown keys of a newer release are ignored."""
        return cls(**{name: stored[name] for name in cls.__slots__ if name in stored})


@dataclass(frozen=True, slots=True)
class TurnInput:
    """One accepted turn as a host asks for it. `input` is text or a list of typed parts.

    `language`, `session_preferences`, `skill_context`, `enabled_skills` and `disabled_skills` are the facade's
    word, not the host's.
    `provider_api_keys` live in memory alone: they are not part of any stored form.
    """

    caller: Caller
    conversation_id: str
    session_id: str
    input: str | list[dict[str, Any]]
    persona_id: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    options: TurnOptions = field(default_factory=TurnOptions)
    user_context: Mapping[str, Any] = field(default_factory=dict)
    user_feedback: Feedback | None = None
    language_hint: str | None = None
    detected_languages: tuple[Detected, ...] = ()
    target_language: str | None = None
    long_term_memory: Mapping[str, Any] | None = None
    language: Language | None = None
    session_preferences: Mapping[str, Any] = field(default_factory=dict)
    skill_context: str | None = None
    enabled_skills: tuple[str, ...] = ()
    disabled_skills: tuple[str, ...] = ()
    provider_api_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    on_pause: Literal["end", "reject"] = "end"
    on_busy: OnBusy = "reject"
    pause_ttl_seconds: float | None = None
    on_expiry: OnExpiry | None = None
    idempotency_key: str | None = None

    @property
    def conversation(self) -> UUID:
        """The conversation's row key."""
        return row_key(self.caller.organization_id, self.conversation_id)


@dataclass(frozen=True, slots=True)
class ResultsInput:
    """Results for a pause: passed on its stream (`stream_id`) or by a resume (`conversation_id` and `pause_id`).

    With `partial` they may leave calls out without those being answered for good: the pause waits for the rest.
    """

    caller: Caller
    results: tuple[ToolResult, ...]
    stream_id: str | None = None
    conversation_id: str | None = None
    pause_id: str | None = None
    options: TurnOptions = field(default_factory=TurnOptions)
    provider_api_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    partial: bool = False
    idempotency_key: str | None = None


class OperationKind(StrEnum):
    """The three kinds of operation that share one path."""

    TURN = "turn"
    CONTINUATION = "continuation"
    RESUME = "resume"


class StreamStatus(StrEnum):
    """What a stream is doing, and how it ended."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"

    @property
    def closed(self) -> bool:
        """Tell whether no operation will run on the stream any more."""
        return self not in {StreamStatus.RUNNING, StreamStatus.PAUSED}


@dataclass(frozen=True, slots=True)
class PauseTerms:
    """What holds for a turn's pauses: how long they are held, and what happens then.

    A turn that came with provider keys is never gone on with by itself, since nobody keeps its keys.
    """

    ttl_seconds: float | None = None
    on_expiry: OnExpiry = "close"
    had_keys: bool = False

    @property
    def at_expiry(self) -> OnExpiry:
        """What happens when a pause runs out."""
        return "close" if self.had_keys else self.on_expiry

    def to_json(self) -> dict[str, Any]:
        """Give the stored form."""
        return {"ttl_seconds": self.ttl_seconds, "on_expiry": self.on_expiry, "had_keys": self.had_keys}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "PauseTerms":
        """Read the stored form."""
        return cls(stored.get("ttl_seconds"), stored.get("on_expiry", "close"), bool(stored.get("had_keys")))


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause as a host reads it (R8, R221)."""

    pause_id: str
    stream_id: str
    conversation_id: str
    session_id: str
    user_id: str
    persona_id: str
    turn_id: str
    tool_calls: tuple[Mapping[str, Any], ...]
    rationale: str | None
    requested_at: str
    expires_at: str | None = None
    received: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """The calls that no result has come for."""
        return tuple(call["id"] for call in self.tool_calls if call["id"] not in self.received)

    def to_json(self) -> dict[str, Any]:
        """Give the public form, `received` and `missing` included."""
        return {
            "pause_id": self.pause_id,
            "stream_id": self.stream_id,
            "conversation_id": self.conversation_id,
            "session_id": self.session_id,
            "user_id": self.user_id,
            "persona_id": self.persona_id,
            "turn_id": self.turn_id,
            "tool_calls": [dict(call) for call in self.tool_calls],
            "rationale": self.rationale,
            "requested_at": self.requested_at,
            "expires_at": self.expires_at,
            "received": list(self.received),
            "missing": list(self.missing),
        }
