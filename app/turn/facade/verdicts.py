"""What a verdict makes of an outcome: blocked, with another text, or without its text. Nothing is changed in place."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from app.domain.chunks import GmiOutput, StreamChunk
from app.domain.ids import fresh
from app.domain.messages import Message
from app.domain.turn import StreamStatus
from app.domain.usage import Usage
from app.guardrails.base import Entry, shown
from app.store.messages import NewMessage
from app.turn.delivery import emitter, final_response
from app.turn.gmi.structured import StructuredReply
from app.turn.orchestrator.effects import NewPause, Outcome
from app.turn.orchestrator.operation import Operation

SPEAKER: Final = "guardrail"
"""Stands for the GMI in what a guard says in its place."""


def noted(chunk: StreamChunk, entries: Sequence[Entry], **more: Any) -> StreamChunk:
    """Give the chunk with the evaluations in its metadata."""
    if not entries and not more:
        return chunk
    guardrail = {**((chunk.metadata or {}).get("guardrail") or {}), **more}
    if entries:
        guardrail["output"] = shown(entries)
    return replace(chunk, metadata={**(chunk.metadata or {}), "guardrail": guardrail})


def blocked(operation: Operation, block: Entry, usage: Usage) -> Outcome:
    """Give the outcome of a block: the guard's replacement as the reply where it has one, else an error."""
    replacement = block.evaluation.replacement_text
    if not replacement:
        details = {"action": block.evaluation.action.value, "metadata": block.to_json()["metadata"]}
        said = emitter.error(block.code, block.message, details)
        outcome = Outcome(
            StreamStatus.BLOCKED,
            (replace(noted(said, [block]), speaker=SPEAKER),),
            error={"code": block.code, "message": block.message},
        )
    else:
        reply = NewMessage(fresh("msg"), _spoken(operation, replacement, block), operation.turn_id)
        persists = operation.services.policy.persistence
        payload = final_response.build(
            GmiOutput(is_final=True, response_text=replacement),
            usage=usage,
            turn_id=operation.turn_id,
            message_id=reply.message_id if persists else None,
            persona=operation.persona or operation.services.personas.known(""),
            plain_text=operation.services.plain_text,
        )
        outcome = Outcome(
            StreamStatus.BLOCKED,
            (replace(noted(emitter.final_response(payload), [block]), speaker=SPEAKER),),
            messages=(reply,) if persists else (),
            final_response=payload,
        )
    return replace(outcome, usage=usage, close_reason="blocked", redact=True)


def _spoken(operation: Operation, text: str, entry: Entry) -> Message:
    persona = operation.persona.id if operation.persona else None
    return Message(
        "assistant", text, metadata={"source": "output", "persona_id": persona, "modification_info": modified(entry)}
    )


def modified(entry: Entry) -> dict[str, str]:
    """Say why a stored message is not what the model wrote."""
    word = entry.evaluation.reason_code or entry.evaluation.action.value
    return {"strategy": "filtered", "reason": f"guardrail:{word}"}


def rewritten(
    operation: Operation, outcome: Outcome, text: str | None, entry: Entry, schema: StructuredReply | None = None
) -> Outcome:
    """Give an ended operation's outcome with another reply; without one, no message of it is kept.

    A reply that is data is read again, and compared with its schema.
    """
    judged = outcome.text
    messages = tuple(
        changed for message in outcome.messages if (changed := _with_text(message, judged, text, entry)) is not None
    )
    ids = {message.message_id for message in messages}
    payload = dict(outcome.final_response or {})
    payload["final_response_text"] = text
    payload["final_response_text_plain"] = None if text is None else operation.services.plain_text.render(text)
    if payload.get("structured") is not None:
        payload["structured"] = _read_again(payload["structured"], text or "", schema)
    if payload.get("message_id") not in ids:
        payload["message_id"] = None
    chunks = tuple(
        replace(chunk, fields=payload) if chunk.type == "final_response" else chunk for chunk in outcome.chunks
    )
    return replace(outcome, text=text, messages=messages, final_response=payload, chunks=chunks)


def _read_again(structured: Mapping[str, Any], text: str, schema: StructuredReply | None) -> dict[str, Any]:
    if schema is None:
        faults = ["A guardrail has changed the reply."]
        return {**structured, "value": None, "valid": False, "issues": faults, "stage": "post_guardrail"}
    how = structured.get("enforcement", "provider_schema")
    return schema.told(schema.judge(text), structured.get("attempts", 1), how, "post_guardrail")


def rewritten_pause(outcome: Outcome, pause: NewPause, text: str | None, entry: Entry) -> Outcome:
    """Give a pausing operation's outcome with another text before the request: in all places where it is kept."""
    judged = outcome.text
    messages = tuple(_with_text(message, judged, text, entry) or message for message in outcome.messages)
    told = rewritten_history(pause.snapshot.messages, judged or "", text)
    rationale = (text or None) if pause.rationale == judged else pause.rationale
    held = replace(pause, rationale=rationale, snapshot=replace(pause.snapshot, messages=told))
    chunks = tuple(_with_rationale(chunk, judged, rationale) for chunk in outcome.chunks)
    return replace(outcome, text=text, messages=messages, pause=held, chunks=chunks)


def _with_rationale(chunk: StreamChunk, judged: str | None, rationale: str | None) -> StreamChunk:
    fields: Mapping[str, Any] = chunk.fields
    if chunk.type != "tool_call_request" or fields.get("rationale") != judged:
        return chunk
    return replace(chunk, fields={**fields, "rationale": rationale or emitter.HOST_RATIONALE})


def _with_text(new: NewMessage, judged: str | None, text: str | None, entry: Entry) -> NewMessage | None:
    """Give the message that holds the judged text with another one; None when nothing is left of it."""
    message = new.message
    if message.role != "assistant" or message.content != judged:
        return new
    blank = text is None or not text.strip()
    if blank and not message.tool_calls:
        return None
    metadata = {**(message.metadata or {}), "modification_info": modified(entry)}
    return replace(new, message=replace(message, content=None if blank else text, metadata=metadata))


def rewritten_history(history: tuple[Message, ...], judged: str, text: str | None) -> tuple[Message, ...]:
    """Give a pause's messages with another text in place of the judged one, which its last steps wrote together.

    The steps are found by their text: from the last one back, as many as make up what was judged. The last one gets
    the new text, since nobody can say which part of it stands for which step.
    """
    places: list[int] = []
    left = judged
    for place in range(len(history) - 1, -1, -1):
        message = history[place]
        if message.role == "assistant" and isinstance(message.content, str) and message.content:
            if not left.endswith(message.content):
                break
            left = left[: len(left) - len(message.content)]
            places.append(place)
        if not left:
            break
    changed = {place: replace(history[place], content=None) for place in places}
    last = max((place for place, message in enumerate(history) if message.tool_calls), default=None)
    if last is not None:
        changed[last] = replace(history[last], content=text if text and text.strip() else None)
    return tuple(changed.get(place, message) for place, message in enumerate(history))
