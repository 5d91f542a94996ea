"""An operation in its session's trace: how it began, what the host answered, how it ended; stored with its outcome."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.feedback import Feedback
from app.domain.messages import CONTEXT_CHARACTERS, Message, text_of
from app.domain.session import SessionKey, TraceEntry, TraceType
from app.domain.tools import ToolResult
from app.domain.turn import OperationKind
from app.store import claims, sessions
from app.store.claims import Seized
from app.store.database import Connection
from app.store.inbound import InboundRecord
from app.store.sessions import Kept, TraceOrigin
from app.turn.gmi.session import LONGEST_MESSAGE, Trace
from app.turn.orchestrator.effects import Outcome
from app.turn.orchestrator.operation import Operation
from app.turn.orchestrator.services import Services

SHOWN_CHARACTERS = 100
"""How much of a turn's input its trace shows."""


def note_start(operation: Operation, messages: Sequence[Message], results: Sequence[ToolResult]) -> None:
    """Note what the operation answers: the user's input, or the host's results."""
    trace, about = operation.session.trace, {"kind": operation.kind.value}
    if operation.kind is not OperationKind.TURN:
        trace.note("interaction_start", f"The host has answered {len(results)} calls.", details=about)
        for result in results:
            _note_answer(trace, result)
        return
    said = next((message for message in reversed(messages) if message.role == "user"), Message("user"))
    kind = "text" if isinstance(said.content, str) else "parts"
    text = text_of(said.content)[(said.metadata or {}).get(CONTEXT_CHARACTERS, 0) :].lstrip()
    trace.note("interaction_start", f"Input ({kind}): {text[:SHOWN_CHARACTERS]}", details=about)


def note_feedback(operation: Operation, feedback: Feedback) -> None:
    """Note what the user thinks of an earlier answer; a bad word is a warning."""
    polarity = feedback.polarity
    about = {
        "score": feedback.score,
        "turn_id": feedback.turn_id,
        "comment": (feedback.comment or "")[:SHOWN_CHARACTERS],
    }
    kind: TraceType = "warning" if polarity == "negative" else "user_feedback"
    operation.session.trace.note(kind, f"The user's feedback is {polarity}.", details=about)


def note_mind(operation: Operation, mind: Mapping[str, Any]) -> None:
    """Take over what preparation has noticed of the user, and note its events."""
    operation.session.change(mind=mind)
    for event in mind.get("events", ()):
        if event["turn"] == mind["turns"]:
            about = {"event": event["event"], "severity": event["severity"]}
            operation.session.trace.note("sentiment_event", f"Noticed: {event['event']}.", details=about)


def note_end(operation: Operation, outcome: Outcome) -> None:
    """Note how the operation ended, its error first if it has one."""
    trace = operation.session.trace
    if outcome.error is not None:
        code = outcome.error.get("code")
        trace.note("error", str(outcome.error.get("message") or code), details={"code": code})
    status = outcome.status.value
    trace.note(
        "interaction_end",
        f"The operation is {status}.",
        related_id=outcome.pause.pause_id if outcome.pause else None,
        details={"status": status, "usage": outcome.usage.to_json()},
    )


def kept(operation: Operation) -> Kept | None:
    """Give what the operation has noted and changed, for the transaction of its outcome; None when nothing is kept."""
    policy, persona = operation.services.policy, operation.persona
    if not policy.persistence or persona is None:
        return None
    limits = persona.reasoning_trace
    most = limits.max_entries or policy.trace_entries
    return Kept(
        SessionKey.of(operation.caller, operation.session_id),
        operation.conversation_id,
        persona.id,
        operation.session.trace.entries(most=most, longest=limits.max_message_length or LONGEST_MESSAGE),
        most,
        operation.session.changes,
    )


async def note_late(operation: Operation, entry: TraceEntry) -> None:
    """Put an entry into the session's trace when the outcome is stored already, unless its conversation is gone."""
    services, persona = operation.services, operation.persona
    if persona is None or not services.policy.persistence:
        return
    origin = TraceOrigin(
        operation.conversation, operation.conversation_id, operation.stream_id, operation.turn_id, persona.id
    )
    most = persona.reasoning_trace.max_entries or services.policy.trace_entries
    async with services.database.transaction() as connection:
        if await claims.lock(connection, operation.conversation) is not None:
            key = SessionKey.of(operation.caller, operation.session_id)
            await sessions.keep(connection, key, origin, [entry], most=most)


async def keep_seized(
    connection: Connection, services: Services, seized: Seized, entry: InboundRecord, why: str
) -> None:
    """Note that an operation was ended by another than its own process; what that had noted is gone with it."""
    if not services.policy.persistence:
        return
    persona = services.personas.known(entry.payload["persona_id"])
    session_id = entry.payload.get("session_id") or seized.session_id
    await sessions.keep(
        connection,
        SessionKey(seized.organization_id, seized.user_id, session_id),
        TraceOrigin(entry.conversation, seized.conversation_id, entry.stream_id, entry.turn_id, persona.id),
        [TraceEntry(services.clock.now(), "interaction_end", f"The operation was ended from outside: {why}.")],
        most=persona.reasoning_trace.max_entries or services.policy.trace_entries,
    )


def _note_answer(trace: Trace, result: ToolResult) -> None:
    tool, decision = result.tool_name, result.decision
    if decision is not None:
        about = {"tool": tool, "approved": decision.approved, "by": decision.by}
        text = f"The call of {tool} was {'approved' if decision.approved else 'denied'}."
        trace.note("tool_permission_check_result", text, related_id=result.tool_call_id, details=about)
        return
    about = {"tool": tool, "is_error": result.is_error, "external": True}
    text = f"The call of {tool} {'failed' if result.is_error else 'was answered'}."
    trace.note("tool_execution_result", text, related_id=result.tool_call_id, details=about)
