"""What queries give back: plain values, ready to be told to a client."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from app.domain.errors import MalformedError
from app.domain.frozen import dataclass
from app.domain.memory import MemoryScope, MemoryType
from app.domain.turn import StreamStatus

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a listing; `next_cursor` is None on the last one."""

    items: tuple[T, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """A place in a stream: after event `n` of the operation that held `fence`."""

    fence: int
    n: int

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Read `<fence>-<n>`; MalformedError for anything else."""
        fence, dash, n = text.partition("-")
        plain = fence.isascii() and fence.isdigit() and n.isascii() and n.isdigit()
        longest = 18
        if not dash or not plain or max(len(fence), len(n)) > longest:
            message = f"The event id {text[:60]!r} is not <fence>-<n>; send the id of the last event you read."
            raise MalformedError(message)
        return cls(int(fence), int(n))

    def __str__(self) -> str:
        return f"{self.fence}-{self.n}"


@dataclass(frozen=True, slots=True)
class Started:
    """An accepted operation: where its events are, and the fence that its event ids begin with.

    `replayed` tells that an earlier request with the same idempotency key started it.
    """

    stream_id: str
    conversation_id: str
    turn_id: str
    fence: int
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class PromptsView:
    """What the models of a stream's operations were told first, the oldest operation first."""

    stream_id: str
    conversation_id: str
    prompts: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class PartialResults:
    """What a pause has and still lacks after results that do not complete it."""

    pause_id: str
    received: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamView:
    """A stream's state. `pending_request` is a pause in its public form; `usage` sums the stream's operations."""

    stream_id: str
    conversation_id: str
    turn_id: str
    status: StreamStatus
    final_response: Mapping[str, Any] | None
    pending_request: Mapping[str, Any] | None
    error: Mapping[str, Any] | None
    usage: Mapping[str, Any] | None
    last_event_id: str | None


@dataclass(frozen=True, slots=True)
class ConversationView:
    """A conversation without its messages. Times are ISO 8601 in UTC."""

    conversation_id: str
    user_id: str
    session_id: str
    persona_id: str | None
    title: str | None
    metadata: Mapping[str, Any]
    created_at: str
    updated_at: str
    message_count: int
    active_stream_id: str | None
    pending_pause_id: str | None


@dataclass(frozen=True, slots=True)
class MessageView:
    """A stored message with its place and its turn."""

    position: int
    message_id: str
    turn_id: str | None
    role: str
    content: Any
    tool_calls: tuple[Mapping[str, Any], ...]
    tool_call_id: str | None
    name: str | None
    is_error: bool
    metadata: Mapping[str, Any]
    created_at: str


@dataclass(frozen=True, slots=True)
class TraceEntryView:
    """An entry of a session's reasoning trace, with its place and the operation that it comes from."""

    position: int
    at: str
    type: str
    message: str
    related_id: str | None
    details: Mapping[str, Any]
    conversation_id: str
    stream_id: str
    turn_id: str
    persona_id: str


@dataclass(frozen=True, slots=True)
class PersonaView:
    """A persona that can be selected."""

    persona_id: str
    name: str
    description: str
    model: str
    tools: tuple[str, ...]
    is_default: bool
    skills: tuple[str, ...] = ()
    version: str | None = None
    default_language: str | None = None
    input_modalities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SkillView:
    """A skill that a session can switch on."""

    skill_id: str
    description: str
    category: str
    license: str | None


@dataclass(frozen=True, slots=True)
class OverridesView:
    """What a session changes about its turns. `own_changes` counts those that its persona made by itself."""

    session_id: str
    options: Mapping[str, Any]
    preferences: Mapping[str, Any]
    enabled_skills: tuple[str, ...]
    disabled_skills: tuple[str, ...]
    own_changes: int


@dataclass(frozen=True, slots=True)
class TraitsView:
    """A persona's traits as a session has them; `changed` are the names of those that are not the persona's own."""

    session_id: str
    persona_id: str
    traits: Mapping[str, float]
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """What requests to one model took. `cost_usd` is None when no price of the model is known.

    `estimated_requests` are those whose provider told no usage, so that the service's own count is in the sums.
    """

    model: str
    requests: int
    failed_requests: int
    estimated_requests: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class RequestView:
    """One attempt at a model request. `purpose` is what it was for; `outcome` is how it ended. Times are seconds."""

    turn_id: str
    purpose: str
    step: int
    hop: int
    attempt: int
    model: str
    outcome: str
    reason: str | None
    status: int | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    estimated: bool
    cost_usd: float | None
    first_output_seconds: float | None
    seconds: float
    created_at: str


@dataclass(frozen=True, slots=True)
class SpendingView:
    """What a stream or a conversation has used: by model, and (of a stream) each request."""

    conversation_id: str
    models: tuple[ModelUsage, ...]
    cost_usd: float | None
    stream_id: str | None = None
    requests: tuple[RequestView, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryView:
    """A memory trace as its user sees it."""

    memory_id: str
    scope: MemoryScope
    type: MemoryType
    source: str
    category: str | None
    content: str
    conversation_id: str
    persona_id: str
    strength: float
    stability_seconds: float
    importance: float
    recalled: int
    created_at: str
    accessed_at: str
