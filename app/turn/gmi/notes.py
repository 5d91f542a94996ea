"""What the built-in GMI notes in its session's trace: steps, calls and failures.

Nothing of it is what a model or a tool has said: a guardrail may still take that away, and the trace is stored.
"""

from collections.abc import Callable, Iterable, Sequence

from app.domain.messages import ToolCall
from app.domain.tools import ToolResult
from app.domain.usage import ModelCall
from app.turn.gmi.base import GmiTurnInput
from app.turn.gmi.session import Trace
from app.turn.gmi.step import Step


def note_request(trace: Trace, step: Step) -> None:
    """Note that a model is asked."""
    request = step.request
    sizes = {"step": step.index, "messages": len(request.messages), "tools": len(request.tools)}
    trace.note("llm_call_start", f"Step {step.index + 1} asks {request.model}.", details=sizes)


def note_answer(trace: Trace, step: Step) -> None:
    """Note that a model has answered, and which."""
    about = {
        "step": step.index,
        "hop": step.hop.number,
        "finish_reason": step.finish_reason,
        "calls": len(step.calls),
        "characters": len(step.text),
        "usage": step.usage.to_json() if step.usage is not None else None,
    }
    served = f"{step.hop.provider}:{step.hop.model}"
    trace.note("llm_call_complete", f"Step {step.index + 1} was answered by {served}.", details=about)


def watched(trace: Trace, on_call: Callable[[ModelCall], None]) -> Callable[[ModelCall], None]:
    """Give what is to be told of attempts, so that those that fail are noted."""

    def told(call: ModelCall) -> None:
        on_call(call)
        if call.outcome == "failed":
            about = {"step": call.step, "hop": call.hop, "reason": call.reason, "status": call.status}
            model = f"{call.provider}:{call.model}"
            trace.note("warning", f"Attempt {call.attempt} at a request to {model} failed.", details=about)

    return told


def note_calls(turn: GmiTurnInput, calls: Iterable[ToolCall], *, for_host: Sequence[ToolCall]) -> None:
    """Note the calls that a model asks for; a name that it made up is not repeated."""
    known = {tool.name for tool in (*turn.runtime_tools, *turn.host_tools)}
    waiting = {call.id for call in for_host}
    for call in calls:
        name = call.name if call.name in known else None
        about = {"tool": name, "external": call.id in waiting, "invalid": call.invalid is not None}
        text = f"The model calls {name or 'a tool that it was not offered'}."
        turn.session.trace.note("tool_call_requested", text, related_id=call.id, details=about)


def note_results(turn: GmiTurnInput, results: Iterable[ToolResult]) -> None:
    """Note how the runtime's own calls ended."""
    known = {tool.name for tool in turn.runtime_tools}
    for result in results:
        name = result.tool_name if result.tool_name in known else None
        code = (result.error_details or {}).get("code")
        about = {"tool": name, "external": False, "is_error": result.is_error, "code": code}
        text = f"The call of {name or 'an unknown tool'} {'failed' if result.is_error else 'was run'}."
        turn.session.trace.note("tool_execution_result", text, related_id=result.tool_call_id, details=about)
