"""Calls that a person must agree to: what a decision makes of them (approve, change, deny)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from app.domain.answers import not_run
from app.domain.messages import ToolCall
from app.domain.tools import DENIED_CODE, ToolResult


def denied(call: ToolCall, result: ToolResult) -> ToolResult:
    """Give the answer to a call that was denied, with the person's reason."""
    reason = result.decision.reason if result.decision is not None else None
    message = f"A person refused this call: {reason}" if reason else "A person refused this call."
    details = {"code": DENIED_CODE, "message": message}
    return replace(result, tool_name=call.name, output=details, is_error=True, error_details=details)


def approved_calls(calls: Sequence[ToolCall], results: Iterable[ToolResult]) -> tuple[ToolCall, ...]:
    """Give the calls that were approved, in call order and with the arguments that were agreed to."""
    decisions = {result.tool_call_id: result.decision for result in results if result.decision is not None}
    found = []
    for call in calls:
        decision = decisions.get(call.id)
        if decision is not None and decision.approved:
            found.append(call if decision.arguments is None else replace(call, arguments=decision.arguments))
    return tuple(found)


def unrun(call: ToolCall, results: Iterable[ToolResult]) -> ToolResult:
    """Give the answer to a call that was approved and has not been run, with the decision."""
    decision = next((result.decision for result in results if result.tool_call_id == call.id), None)
    return replace(not_run(call), decision=decision)


def settled(calls: Sequence[ToolCall], results: Iterable[ToolResult], *, to_run: bool) -> list[ToolResult]:
    """Give the results as answers, in the order given: a denial is an error.

    An approval is no answer: it is left out where its call is `to_run`, and else answered as not run.
    """
    by_id = {call.id: call for call in calls}
    answers: list[ToolResult] = []
    for result in results:
        call = by_id[result.tool_call_id]
        if result.decision is None:
            answers.append(result)
        elif not result.decision.approved:
            answers.append(denied(call, result))
        elif not to_run:
            answers.append(unrun(call, [result]))
    return answers
