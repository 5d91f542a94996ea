"""GMI chunks to stream chunks (R242, R245, R291 to R293). What a host has no use for is not forwarded."""

from typing import Never

from app.domain.chunks import (
    FinalResponseMarker,
    GmiChunk,
    GmiError,
    LatencyReport,
    ReasoningStateUpdate,
    SourcesAvailable,
    StepFinished,
    StreamChunk,
    SystemNotice,
    TextDelta,
    ToolCallRequest,
    ToolResultRecorded,
    UiCommands,
    UsageUpdate,
)
from app.turn.delivery import emitter
from app.turn.delivery.requests import HeldRequests


def to_stream(chunk: GmiChunk, held: HeldRequests) -> StreamChunk | None:
    """Give the chunk's stream form, or None. Host requests go to `held`; an error goes out with the outcome."""
    shown: StreamChunk | None = None
    match chunk:
        case TextDelta(text):
            shown = emitter.text_delta(text) if text else None
        case ToolCallRequest(calls, external, rationale, metadata):
            if external:
                held.hold(chunk)
            elif calls:
                shown = emitter.own_tool_request(calls, rationale, metadata)
        case SourcesAvailable(sources):
            shown = emitter.metadata_update({"rag_sources": [dict(source) for source in sources]}) if sources else None
        case SystemNotice(message, percentage, status_code):
            shown = emitter.system_progress(message, percentage, status_code)
        case UiCommands(commands):
            shown = emitter.ui_command(commands)
        case UsageUpdate() | StepFinished() | ToolResultRecorded() | FinalResponseMarker() | GmiError():
            pass
        case ReasoningStateUpdate() | LatencyReport():
            pass
        case _ as unknown:
            # A host's own GMI is not type-checked here, and what it meant to say must not be lost in silence.
            _refuse(unknown)
    return shown


def _refuse(unknown: Never) -> Never:
    message = f"A GMI has yielded a value of type {type(unknown).__name__}, which is no chunk."
    raise TypeError(message)
