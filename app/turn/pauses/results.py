"""Results for a pause: whole or not at all, one answer a call, and the ones that came before count (R74 to R83)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from app.domain.answers import in_call_order
from app.domain.approval import approved_calls
from app.domain.errors import InvalidStateError, TooLargeError, ValidationError
from app.domain.jsontext import dumps, loads
from app.domain.messages import ToolCall
from app.domain.tools import EXTERNAL_ERROR_CODE, ToolResult
from app.domain.turn import Caller
from app.store.pauses import PauseRecord


def as_json(results: Sequence[ToolResult], *, max_bytes: int) -> tuple[ToolResult, ...]:
    """Give the results as they are read back from storage, so that no process ever sees another form of them.

    Raises ValidationError for no results at all, InvalidStateError for one without a JSON form, and TooLargeError for
    one over `max_bytes`.
    """
    if not results:
        message = "There are no results; send one for each call of the request."
        raise ValidationError(message)
    return tuple(_as_json(result, max_bytes) for result in results)


def _as_json(result: ToolResult, max_bytes: int) -> ToolResult:
    try:
        encoded = dumps(_finite(result.to_json()))
        plain = ToolResult.from_json(loads(encoded))
    except (TypeError, ValueError, RecursionError):
        message = f"The result of the call {result.tool_call_id!r} has no JSON form; none of the results was taken."
        raise InvalidStateError(message) from None
    if len(encoded) > max_bytes:
        message = (
            f"The result of the call {result.tool_call_id!r} has {len(encoded)} bytes and the limit is {max_bytes}; "
            "send a summary, or an address where the rest can be read."
        )
        raise TooLargeError(message, limit=max_bytes)
    return plain


def _finite(value: Any) -> Any:
    """Raise ValueError for a number that is none: the encoder would write it as null."""
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(value)
    if isinstance(value, Mapping):
        for entry in value.values():
            _finite(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            _finite(entry)
    return value


def check_results(pause: PauseRecord, results: Sequence[ToolResult]) -> None:
    """Refuse results as a whole unless each answers one call of the pause, once.

    A call that has an answer already takes the same one again, and no other. Raises InvalidStateError.
    """
    calls = {call.id for call in pause.calls}
    unknown = [result.tool_call_id for result in results if result.tool_call_id not in calls]
    if unknown:
        message = f"No call of the pause has the id {unknown[0]!r}; none of the results was taken."
        raise InvalidStateError(message, pause_id=pause.pause_id, tool_call_ids=sorted(calls))
    if len({result.tool_call_id for result in results}) < len(results):
        message = "Two results answer the same call; none of the results was taken."
        raise InvalidStateError(message, pause_id=pause.pause_id)
    _check_kinds(pause, results)
    _check_repeats(pause, results)


def _check_kinds(pause: PauseRecord, results: Sequence[ToolResult]) -> None:
    """A decision is for a call that needs approval, and no other answer is."""
    calls = {call.id: call for call in pause.calls}
    for result in results:
        call = calls[result.tool_call_id]
        if call.needs_approval != (result.decision is not None):
            wants = "an approval and not an output" if call.needs_approval else "an output and not an approval"
            message = f"The call {call.id!r} of {call.name} needs {wants}; none of the results was taken."
            raise InvalidStateError(message, pause_id=pause.pause_id, tool_call_id=call.id)


def _check_repeats(pause: PauseRecord, results: Sequence[ToolResult]) -> None:
    stored = {result.tool_call_id: result for result in pause.results}
    for result in results:
        before = stored.get(result.tool_call_id)
        if before is not None and dumps(before.to_json()) != dumps(result.to_json()):
            message = f"The call {result.tool_call_id!r} was answered otherwise before; none of the results was taken."
            raise InvalidStateError(message, pause_id=pause.pause_id, tool_call_id=result.tool_call_id)


def check_changes(
    pause: PauseRecord, results: Sequence[ToolResult], fault_of: Callable[[ToolCall], str | None]
) -> None:
    """Refuse changed arguments that their tool would not take. Raises ValidationError."""
    for call in approved_calls(pause.calls, results):
        fault = fault_of(call)
        if fault is not None:
            message = f"The changed arguments of the call {call.id!r} don't fit the tool {call.name}: {fault}"
            raise ValidationError(message, pause_id=pause.pause_id, tool_call_id=call.id)


def signed(results: Sequence[ToolResult], caller: Caller) -> tuple[ToolResult, ...]:
    """Give the results with the name of who decided; where none was given, it is the caller."""
    return tuple(
        replace(result, decision=replace(result.decision, by=caller.user_id))
        if result.decision is not None and result.decision.by is None
        else result
        for result in results
    )


def named(pause: PauseRecord, results: Sequence[ToolResult]) -> tuple[ToolResult, ...]:
    """Give the results with their tools' names, and with a word on each failure that says nothing itself."""
    names = {call.id: call.name for call in pause.calls}
    return tuple(_named(result, names.get(result.tool_call_id, result.tool_name)) for result in results)


def _named(result: ToolResult, name: str) -> ToolResult:
    details = result.error_details
    if result.is_error and details is None:
        message = f"The host reported that the tool {name} failed."
        details = {"code": EXTERNAL_ERROR_CODE, "message": message}
        if result.output is not None:
            details["output"] = result.output
    return replace(result, tool_name=name, error_details=details)


def merged(pause: PauseRecord, results: Sequence[ToolResult]) -> list[ToolResult]:
    """Give all answers that there are: partial results of before in call order, then the new ones as given."""
    before = {result.tool_call_id for result in pause.results}
    new = [result for result in results if result.tool_call_id not in before]
    return [*in_call_order(pause.calls, pause.results), *new]


def is_complete(pause: PauseRecord, results: Sequence[ToolResult]) -> bool:
    """Tell whether every call of the pause has an answer with these results."""
    return len(merged(pause, results)) == len(pause.calls)
