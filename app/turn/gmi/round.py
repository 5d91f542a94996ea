"""One tool round: the calls of a step that the runtime answers itself, run side by side, reported in call order."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from app.domain.answers import result_message
from app.domain.errors import ToolFailedError
from app.domain.frozen import dataclass
from app.domain.jsontext import dumps
from app.domain.messages import Message, ToolCall
from app.domain.tools import FailureMode, ToolGate, ToolResult
from app.tools.base import ToolContext
from app.tools.executor import ToolExecutor, failed

MOST_IDENTICAL: Final = 2
"""How often one turn may make the very same call; asked once more, the model is told that it repeats itself."""


@dataclass(frozen=True, slots=True)
class RoundRules:
    """What holds for the rounds of a turn.

    `offered` are the names of the runtime tools that the model was told of, `denied` of those that it was not told of
    since its persona may not use them.
    """

    offered: frozenset[str]
    gate: ToolGate
    failure_mode: FailureMode
    concurrency: int
    denied: frozenset[str] = frozenset()


async def run_round(
    calls: Sequence[ToolCall],
    before: Iterable[Message],
    rules: RoundRules,
    tools: ToolExecutor,
    context: ToolContext,
) -> list[ToolResult]:
    """Answer every call, in call order. `before` are the messages of the turn so far, this step's answer left out.

    With `fail_open` the calls run side by side. With `fail_closed` they run one after another, and behind one that
    fails none is run: the rest are answered as not run.
    """
    made = Counter(map(_identity, _calls_of_turn(before)))
    planned: list[tuple[ToolCall, ToolResult | None]] = []
    for call in calls:
        made[_identity(call)] += 1
        planned.append((call, _refusal(call, rules, made[_identity(call)])))
    if rules.failure_mode == "fail_closed":
        return await _one_by_one(planned, tools, context)
    places = asyncio.Semaphore(rules.concurrency)

    async def answer(call: ToolCall, refusal: ToolResult | None) -> ToolResult:
        if refusal is not None:
            return refusal
        async with places:
            return await tools.run(call, context)

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(answer(call, refusal)) for call, refusal in planned]
    return [task.result() for task in running]


def check_closed(results: Iterable[ToolResult], rules: RoundRules) -> None:
    """Raise ToolFailedError for the first failed result, in a turn that must not go on without its tools."""
    if rules.failure_mode == "fail_open":
        return
    for result in results:
        if result.is_error:
            told = (result.error_details or {}).get("message", "it gave no reason")
            message = f"The tool {result.tool_name} failed, and the turn is not to go on without it: {told}"
            raise ToolFailedError(message, tool_call_id=result.tool_call_id, tool=result.tool_name)


async def _one_by_one(
    planned: Sequence[tuple[ToolCall, ToolResult | None]], tools: ToolExecutor, context: ToolContext
) -> list[ToolResult]:
    results: list[ToolResult] = []
    for call, refusal in planned:
        if any(result.is_error for result in results):
            message = "This call was not run, because an earlier one of the same round failed."
            results.append(failed(call, "TOOL_NOT_RUN", message))
        else:
            results.append(refusal or await tools.run(call, context))
    return results


def _refusal(call: ToolCall, rules: RoundRules, times: int) -> ToolResult | None:
    if not rules.gate.lets_pass(call.name):
        return failed(call, "TOOL_CALL_REFUSED", f"This turn does not allow calls of the tool {call.name}.")
    if call.name in rules.denied:
        return failed(call, "AUTH_PERMISSION_DENIED", f"You may not use the tool {call.name}.")
    if call.name not in rules.offered:
        known = ", ".join(sorted(rules.offered)) or "none"
        return failed(call, "TOOL_NOT_FOUND", f"There is no tool named {call.name}; the tools there are: {known}.")
    if times > MOST_IDENTICAL:
        message = (
            f"You have made exactly this call {times - 1} times in this turn. It was not run again: use the results "
            "that you have, call with other arguments, or answer."
        )
        return failed(call, "TOOL_CALL_REPEATED", message)
    return None


def _identity(call: ToolCall) -> tuple[str, bytes, str | None]:
    return call.name, dumps(sorted(call.arguments.items())), call.invalid


def _calls_of_turn(messages: Iterable[Message]) -> list[ToolCall]:
    """Give the calls that were made since the user spoke last."""
    found: list[ToolCall] = []
    for message in messages:
        if message.role == "user":
            found.clear()
        found += message.tool_calls
    return found


def with_approved(
    messages: Sequence[Message], calls: Sequence[ToolCall], results: Sequence[ToolResult]
) -> tuple[list[Message], list[ToolResult]]:
    """Give the messages with the results of approved calls in call order, and the results as the model reads them.

    A call that was run with other arguments than the model's own says so in its result.
    """
    place = max(index for index, message in enumerate(messages) if message.tool_calls)
    asked = {call.id: call for call in messages[place].tool_calls}
    told = [
        result if call.arguments == asked[call.id].arguments or result.is_error else _changed(call, result)
        for call, result in zip(calls, results, strict=True)
    ]
    answers = {message.tool_call_id: message for message in messages[place + 1 :]}
    answers |= {result.tool_call_id: result_message(result) for result in told}
    return [*messages[: place + 1], *(answers[call_id] for call_id in asked if call_id in answers)], told


def _changed(call: ToolCall, result: ToolResult) -> ToolResult:
    note = {"changed_by_a_person": {"arguments": dict(call.arguments)}, "output": result.output}
    return replace(result, output=note)
