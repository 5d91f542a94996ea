"""Answers to calls: as a tool message the model reads, and the stand-in for a call that nobody ran (R93, R94, R109)."""

from collections.abc import Iterable, Sequence

from app.domain.jsontext import dumps_text
from app.domain.messages import Content, Message, ToolCall, is_parts
from app.domain.tools import NOT_RUN_CODE, ToolResult


def not_run(call: ToolCall) -> ToolResult:
    """Answer a call for which no result exists."""
    details = {"code": NOT_RUN_CODE, "message": "The host did not run this call, so it has no result."}
    return ToolResult(call.id, call.name, output=details, is_error=True, error_details=details)


def missing_answers(calls: Iterable[ToolCall], results: Sequence[ToolResult]) -> list[ToolResult]:
    """Answer every call that the results leave out, in the order of the calls."""
    answered = {result.tool_call_id for result in results}
    return [not_run(call) for call in calls if call.id not in answered]


def in_call_order(calls: Sequence[ToolCall], results: Iterable[ToolResult]) -> list[ToolResult]:
    """Sort results into the order of the calls they answer: the order that every model is told."""
    places = {call.id: place for place, call in enumerate(calls)}
    return sorted(results, key=lambda result: places[result.tool_call_id])


def result_message(result: ToolResult) -> Message:
    """Give the tool message of a result: text and content parts as they are, other values as JSON.

    An error stands behind a label.
    """
    content: Content
    if result.is_error:
        details = result.error_details if result.error_details is not None else result.output
        content = f"The tool {result.tool_name} failed: {dumps_text(details)}"
    elif isinstance(result.output, str):
        content = result.output
    elif is_parts(result.output):
        content = list(result.output)
    else:
        content = dumps_text(result.output)
    decision = {"approval": result.decision.to_json()} if result.decision is not None else None
    return Message(
        "tool",
        content,
        tool_call_id=result.tool_call_id,
        name=result.tool_name,
        is_error=result.is_error,
        metadata=decision,
    )
