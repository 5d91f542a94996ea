"""What the `data` of a frame holds: one model for each chunk type, and the `end` event.

These describe frames to clients (`openapi/chunks.schema.json`); frames themselves are encoded without them. A field
with a default may be absent.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter

from app.api.schemas.streams import CallOut, UsageOut
from app.domain.turn import StreamStatus


class _Chunk(BaseModel):
    model_config = ConfigDict(extra="allow")

    stream_id: str
    gmi_instance_id: str = Field(description="Which GMI speaks.")
    persona_id: str
    is_final: bool = Field(description="True for the chunk that ends what the operation has to say.")
    timestamp: str = Field(description="ISO 8601, UTC.")
    metadata: Mapping[str, Any] = Field(default={}, description="What the runtime or the GMI adds.")


class TextDeltaChunk(_Chunk):
    """A piece of the reply, never empty unless it was taken back. `final_response` has the reply as a whole."""

    type: Literal["text_delta"]
    text_delta: str
    redacted: bool = Field(default=False, description="A guardrail took the text back after it had gone out.")


class SystemProgressChunk(_Chunk):
    """A note of progress."""

    type: Literal["system_progress"]
    message: str
    progress_percentage: float | None
    status_code: str | None


class RequestedCall(BaseModel):
    """One call. Of a pause, `kind` says whether the host runs it or a person must agree to it."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    kind: Literal["tool", "approval"] | None = Field(default=None, description="There when a result is required.")


class ToolCallRequestChunk(_Chunk):
    """Tool calls. With `requires_external_tool_result` the turn has paused, and the host must run all of them."""

    type: Literal["tool_call_request"]
    tool_calls: list[RequestedCall] = Field(min_length=1)
    rationale: str | None
    execution_mode: Literal["internal", "external"]
    requires_external_tool_result: bool
    pause_id: str | None = Field(default=None, description="The pause; there when a result is required.")


class ToolResultEmissionChunk(_Chunk):
    """A result that the host has passed."""

    type: Literal["tool_result_emission"]
    tool_call_id: str
    tool_name: str
    tool_result: Any
    is_success: bool
    error_message: str | None = None


class UiCommandChunk(_Chunk):
    """Commands for a client's surface."""

    type: Literal["ui_command"]
    ui_commands: list[Mapping[str, Any]]


class ErrorOut(BaseModel):
    """A failure: the code and the message of the problem document that a refusal would have been."""

    code: str
    message: str
    details: Mapping[str, Any] = Field(default={})


class PersonaDetailsOut(BaseModel):
    """Who has answered."""

    id: str
    name: str
    description: str


class StructuredOut(BaseModel):
    """A reply as a JSON value, and whether it fits the schema that the turn asked for."""

    value: Any
    name: str
    valid: bool
    attempts: int
    enforcement: Literal["provider_schema", "forced_tool", "prompt_only"] = Field(
        description="How the model was held to the schema: by its provider, by a call that it had to make, or by words."
    )
    stage: Literal["model", "post_guardrail"] = Field(description="Whose text it is: the model's, or a guardrail's.")
    issues: list[str] = Field(default=[], description="What is wrong with it.")


class FinalResponseChunk(_Chunk):
    """The end of a turn that does not wait for its host: the whole reply, and what it took."""

    type: Literal["final_response"]
    final_response_text: str | None
    final_response_text_plain: str | None
    final_tool_calls: list[CallOut] | None
    final_ui_commands: list[Mapping[str, Any]] | None
    usage: UsageOut | None
    rag_sources: list[Mapping[str, Any]] | None
    error: ErrorOut | None
    active_persona_details: PersonaDetailsOut | None
    turn_id: str
    message_id: str | None
    structured: StructuredOut | None = Field(default=None, description="There when the turn asked for it.")


class ErrorChunk(_Chunk):
    """The operation failed. After a failure inside the GMI a `final_response` follows."""

    type: Literal["error"]
    code: str
    message: str
    details: Mapping[str, Any] = Field(default={})


class MetadataUpdateChunk(_Chunk):
    """What the runtime knows of the turn, such as `execution_lifecycle` or `rag_sources`."""

    type: Literal["metadata_update"]
    updates: Mapping[str, Any]


class EndEvent(BaseModel):
    """The last frame of an operation. A response that stops without it was cut: read on after the last id."""

    model_config = ConfigDict(extra="allow")

    status: StreamStatus
    pause_id: str | None = Field(default=None, description="The pause that is held, when the status is `paused`.")
    last: int = Field(description="How many frames the operation had, this one included.")


class FrameData(
    RootModel[
        TextDeltaChunk
        | SystemProgressChunk
        | ToolCallRequestChunk
        | ToolResultEmissionChunk
        | UiCommandChunk
        | FinalResponseChunk
        | ErrorChunk
        | MetadataUpdateChunk
        | EndEvent
    ]
):
    """The data of one event: a chunk, whose `type` is the event's name, or the `end`."""


CHUNK_MODELS: Final = (
    TextDeltaChunk,
    SystemProgressChunk,
    ToolCallRequestChunk,
    ToolResultEmissionChunk,
    UiCommandChunk,
    FinalResponseChunk,
    ErrorChunk,
    MetadataUpdateChunk,
)


def frame_schema(ref_template: str = "#/$defs/{model}") -> dict[str, Any]:
    """Give the JSON Schema of a frame's data."""
    return TypeAdapter(FrameData).json_schema(ref_template=ref_template, mode="serialization")
