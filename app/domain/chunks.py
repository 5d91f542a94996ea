"""Chunks: what a GMI emits, and what a stream carries.

A GMI yields `GmiChunk` values and, last of all, one `GmiOutput`. Delivery turns them into `StreamChunk` values, which
are what readers see. Both are plain frozen values: between a provider's delta and the socket nothing is validated.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Literal

from app.domain.frozen import dataclass
from app.domain.messages import Message, ToolCall
from app.domain.tools import ToolResult
from app.domain.usage import Hop, Usage

# What a GMI emits (R264 to R273) ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the reply; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallRequest:
    """Calls that the model asked for; `external` ones are for the host (R223, R230)."""

    calls: tuple[ToolCall, ...]
    external: bool = False
    rationale: str | None = None
    metadata: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class UsageUpdate:
    """Running total of the step's model request, or the bill of a failed attempt (R281, R284)."""

    usage: Usage
    attempt_failed: bool = False
    hop: int = 0
    provider: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A model step is complete (R268): its own text, who served it, and what the provider told of its answer.

    `structured_output` is the value of a reply that was to fit a schema, where the step's text holds one.
    `thinking_blocks` are the model's reasoning as it goes back to it: `{text, signature?, after, provider, model}`.
    """

    step_index: int
    text: str
    finish_reason: str | None
    provider: str
    model: str
    hop: int = 0
    usage: Usage | None = None
    response_model: str | None = None
    service_tier: str | None = None
    provider_message_id: str | None = None
    cache_diagnostics: Mapping[str, Any] | None = None
    structured_output: Any = None
    thinking_blocks: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class ToolResultRecorded:
    """One result of the GMI's own tool round (R269)."""

    result: ToolResult


@dataclass(frozen=True, slots=True)
class SourcesAvailable:
    """Sources that retrieval found (R264); never empty."""

    sources: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class SystemNotice:
    """A note of progress from a GMI; the built-in one emits none (R273)."""

    message: str
    progress_percentage: float | None = None
    status_code: str | None = None


@dataclass(frozen=True, slots=True)
class UiCommands:
    """Commands for a client's surface; the built-in GMI emits none (R273)."""

    commands: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ReasoningStateUpdate:
    """How a GMI's reasoning stands; the built-in one emits none (R273), and no stream carries it."""

    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LatencyReport:
    """How long parts of a GMI's turn took; the built-in one emits none (R273), and no stream carries it."""

    milliseconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class GmiError:
    """The turn failed inside the GMI (R270)."""

    code: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Give the public form; details are left out when there are none."""
        shown: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.details:
            shown["details"] = dict(self.details)
        return shown


@dataclass(frozen=True, slots=True)
class FinalResponseMarker:
    """Always the last chunk of a GMI turn (R271)."""


GmiChunk = (
    TextDelta
    | ToolCallRequest
    | UsageUpdate
    | StepFinished
    | ToolResultRecorded
    | SourcesAvailable
    | SystemNotice
    | UiCommands
    | ReasoningStateUpdate
    | LatencyReport
    | GmiError
    | FinalResponseMarker
)


@dataclass(frozen=True, slots=True)
class GmiOutput:
    """What a GMI turn returns. It stops for the host when it is not final and names calls (R23).

    `history` is the message list of the turn as the model has seen it, the last answer included: what a pause keeps
    (R160, R161). `hop` is the model that served the last step, where that is known.
    """

    is_final: bool
    response_text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    rag_sources: tuple[Mapping[str, Any], ...] = ()
    ui_commands: tuple[Mapping[str, Any], ...] = ()
    error: GmiError | None = None
    history: tuple[Message, ...] = ()
    steps: int = 0
    hop: Hop | None = None
    structured: Mapping[str, Any] | None = None


# What a stream carries ----------------------------------------------------------------------------------------------

ChunkType = Literal[
    "text_delta",
    "system_progress",
    "tool_call_request",
    "tool_result_emission",
    "ui_command",
    "final_response",
    "error",
    "metadata_update",
]
FINAL_TYPES: Final[frozenset[ChunkType]] = frozenset({"final_response", "error"})


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """One chunk of a stream: its type, its own fields, and metadata. Built by `turn/delivery/emitter.py` alone.

    `speaker` stands in for the operation's GMI where something else has the word.
    """

    type: ChunkType
    fields: Mapping[str, Any]
    metadata: Mapping[str, Any] | None = None
    speaker: str | None = None

    @property
    def chunks(self) -> tuple["StreamChunk"]:
        """Give the chunk itself, as the one that is said."""
        return (self,)

    @property
    def is_final(self) -> bool:
        """Tell whether the chunk ends what its operation has to say."""
        return self.type in FINAL_TYPES
