"""Results for a pause: whole or not at all, one answer a call, and the ones that came before count (R74 to R83)."""

import json
from collections.abc import Sequence
from dataclasses import replace

from app.domain.answers import in_call_order
from app.domain.errors import InvalidStateError, TooLargeError
from app.domain.jsontext import dumps
from app.domain.tools import EXTERNAL_ERROR_CODE, ToolResult
from app.store.pauses import PauseRecord


def check_results(pause: PauseRecord, results: Sequence[ToolResult], *, max_bytes: int) -> None:
    """Refuse results as a whole unless each answers one call of the pause, once, in JSON form and size.

    A call that has an answer already takes the same one again, and no other. Raises InvalidStateError, or
    TooLargeError for a result over `max_bytes`.
    """
    calls = {call.id for call in pause.calls}
    unknown = [result.tool_call_id for result in results if result.tool_call_id not in calls]
    if unknown:
        message = f"No call of the pause has the id {unknown[0]!r}; none of the results was taken."
        raise InvalidStateError(message, pause_id=pause.pause_id, tool_call_ids=sorted(calls))
    if len({result.tool_call_id for result in results}) < len(results):
        message = "Two results answer the same call; none of the results was taken."
        raise InvalidStateError(message, pause_id=pause.pause_id)
    for result in results:
        _check_form(pause, result, max_bytes)
    _check_repeats(pause, results)


def _check_form(pause: PauseRecord, result: ToolResult, max_bytes: int) -> None:
    try:
        encoded = dumps(result.to_json())
        if b"null" in encoded:
            json.dumps(result.output, allow_nan=False)  # the quick encoder writes null for a number that is none
    except (TypeError, ValueError, RecursionError):
        message = f"The result of the call {result.tool_call_id!r} has no JSON form; none of the results was taken."
        raise InvalidStateError(message, pause_id=pause.pause_id) from None
    size = len(encoded)
    if size > max_bytes:
        message = (
            f"The result of the call {result.tool_call_id!r} has {size} bytes and the limit is {max_bytes}; send a "
            "summary, or an address where the rest can be read."
        )
        raise TooLargeError(message, pause_id=pause.pause_id, limit=max_bytes)


def _check_repeats(pause: PauseRecord, results: Sequence[ToolResult]) -> None:
    stored = {result.tool_call_id: result for result in pause.results}
    for result in results:
        before = stored.get(result.tool_call_id)
        if before is not None and dumps(before.to_json()) != dumps(result.to_json()):
            message = f"The call {result.tool_call_id!r} was answered otherwise before; none of the results was taken."
            raise InvalidStateError(message, pause_id=pause.pause_id, tool_call_id=result.tool_call_id)


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
