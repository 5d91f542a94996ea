"""The one place where stream chunks are built. A field that a chunk type has is named here and nowhere else."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from app.domain.chunks import StreamChunk
from app.domain.messages import ToolCall
from app.domain.tools import ToolResult

HOST_RATIONALE = "The assistant needs the host to run these tools."
OWN_RATIONALE = "The assistant is using its own tools."


def text_delta(text: str) -> StreamChunk:
    """A piece of the reply; `text` is not empty."""
    return StreamChunk("text_delta", {"text_delta": text})


def system_progress(message: str, percentage: float | None = None, status_code: str | None = None) -> StreamChunk:
    """A note of progress."""
    return StreamChunk(
        "system_progress", {"message": message, "progress_percentage": percentage, "status_code": status_code}
    )


def own_tool_request(
    calls: Sequence[ToolCall], rationale: str | None = None, metadata: Mapping[str, Any] | None = None
) -> StreamChunk:
    """Tell which calls the runtime runs itself; nobody has to act on it."""
    return _request(calls, rationale or OWN_RATIONALE, metadata, external=False)


def host_tool_request(
    calls: Sequence[ToolCall], *, pause_id: str, rationale: str | None, metadata: Mapping[str, Any] | None = None
) -> StreamChunk:
    """Ask the host to run exactly these calls: the one actionable request of a pause (R219, R221)."""
    return _request(calls, rationale or HOST_RATIONALE, metadata, external=True, pause_id=pause_id)


def _request(
    calls: Sequence[ToolCall],
    rationale: str,
    metadata: Mapping[str, Any] | None,
    *,
    external: bool,
    pause_id: str | None = None,
) -> StreamChunk:
    fields: dict[str, Any] = {
        "tool_calls": [call.asked() if external else call.public() for call in calls],
        "rationale": rationale,
        "execution_mode": "external" if external else "internal",
        "requires_external_tool_result": external,
    }
    if pause_id is not None:
        fields["pause_id"] = pause_id
    return StreamChunk("tool_call_request", fields, metadata)


def tool_result_emission(result: ToolResult) -> StreamChunk:
    """Tell of one result that the host passed."""
    fields: dict[str, Any] = {
        "tool_call_id": result.tool_call_id,
        "tool_name": result.tool_name,
        "tool_result": result.output if result.decision is None else result.decision.to_json(),
        "is_success": not result.is_error and (result.decision is None or result.decision.approved),
    }
    if result.is_error and result.error_details:
        fields["error_message"] = result.error_details.get("message")
    return StreamChunk("tool_result_emission", fields)


def ui_command(commands: Sequence[Mapping[str, Any]]) -> StreamChunk:
    """Commands for a client's surface."""
    return StreamChunk("ui_command", {"ui_commands": [dict(command) for command in commands]})


def metadata_update(updates: Mapping[str, Any]) -> StreamChunk:
    """Tell what the runtime knows of the turn."""
    return StreamChunk("metadata_update", {"updates": dict(updates)})


def lifecycle(phase: str, status: str, now: datetime, details: Mapping[str, Any] | None = None) -> StreamChunk:
    """Tell where the turn stands: planned, executing, degraded, recovered, completed, errored."""
    shown: dict[str, Any] = {"phase": phase, "status": status, "timestamp": now.isoformat(timespec="milliseconds")}
    if details:
        shown["details"] = dict(details)
    return metadata_update({"execution_lifecycle": shown})


def error(code: str, message: str, details: Mapping[str, Any] | None = None) -> StreamChunk:
    """Tell of a failure, with its own code and message."""
    fields: dict[str, Any] = {"code": code, "message": message}
    if details:
        fields["details"] = dict(details)
    return StreamChunk("error", fields)


def final_response(fields: Mapping[str, Any]) -> StreamChunk:
    """The end of a turn that does not stop for its host; the fields come from `final_response.build`."""
    return StreamChunk("final_response", fields)
