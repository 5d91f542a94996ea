"""A turn: preparation (T1 is in its phase 8), the GMI, delivery. T2 is the publisher's, once the end is judged."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from app.domain.documents import FoundChunk
from app.domain.errors import DatabaseError
from app.domain.persona import Persona
from app.domain.turn import OnBusy, PauseTerms, TurnInput
from app.store import acceptance, messages
from app.store.database import Connection
from app.store.inbound import InboundRecord
from app.store.messages import NewMessage
from app.tools.base import ToolContext
from app.turn.gmi.base import GmiTurnInput
from app.turn.orchestrator.execution import Emissions, execute
from app.turn.orchestrator.operation import Opening, Operation
from app.turn.orchestrator.queue import accept_in_turn
from app.turn.orchestrator.remembering import give_summary
from app.turn.orchestrator.tracing import note_feedback, note_mind
from app.turn.preparation.draft import Accept, PhaseServices, PreparedTurn, Store, TurnDraft, Verdict
from app.turn.preparation.knowledge import passages_for
from app.turn.preparation.pipeline import RETRY_SECONDS, prepare


async def run_turn(operation: Operation, turn: TurnInput, verdict: Verdict | None = None) -> Emissions:
    """Prepare the turn; what is given runs it, and its last item is the outcome.

    A refusal before T1 raises and leaves no trace. `verdict` gives the turn as it may be accepted, where its input is
    judged while it is prepared.
    """
    operation.flags = turn.options.custom_flags
    draft = TurnDraft(turn, operation.conversation, operation.stream_id, operation.turn_id, verdict=verdict)
    prepared = await prepare(draft, phase_services(operation, turn.on_busy))
    return execute(operation, prepared.gmi, gmi_input(operation, turn, prepared))


def accepting(operation: Operation, on_busy: OnBusy) -> Accept:
    """Give the turn's T1."""
    services = operation.services
    ephemeral = not services.policy.persistence

    async def accept(store: Store, new: NewMessage, payload: dict[str, Any], *, alone: bool) -> int:
        kept = () if ephemeral else (new,)

        async def at_once(connection: Connection, rests: Sequence[bytes]) -> int | None:
            claim, entry = operation.claim(payload["persona_id"]), inbound_record(operation, 0, payload)
            return await acceptance.accept_free(connection, claim, entry, ephemeral=ephemeral, new=kept, rests=rests)

        async def attempt(place: int | None, left_out: Sequence[str]) -> None:
            async def then(connection: Connection, fence: int, opening: Opening) -> None:
                # First of all, since a key in use means that nothing may be changed.
                free = await acceptance.accept(
                    connection,
                    inbound_record(operation, fence, payload),
                    persona_id=payload["persona_id"],
                    ephemeral=ephemeral,
                    new=kept,
                    batches=opening(()),
                )
                await store(connection, fence, free)
                if left_out:
                    # Behind `store`, so that the answers of a pause that ended meanwhile go with their turn.
                    await messages.leave_out(connection, operation.conversation, left_out)

            await operation.accept(operation.claim(payload["persona_id"], place), then, create=True)

        if not (alone and await operation.accept_free(at_once)):
            await accept_in_turn(operation, on_busy, inbound_record(operation, 0, payload, status="waiting"), attempt)
        return operation.fence

    return accept


def phase_services(operation: Operation, on_busy: OnBusy) -> PhaseServices:
    """Give the phases what they may use, with the operation's voice and its T1."""
    services = operation.services
    return PhaseServices(
        database=services.database,
        clock=services.clock,
        personas=services.personas,
        gmis=services.gmis,
        gateway=services.gateway,
        before_call=operation.may_go_on,
        on_call=operation.calls.append,
        tools=services.tools.registry,
        counters=services.counters,
        policy=services.policy,
        aids=services.aids,
        emit=operation.emit,
        wake=lambda stream_id: services.wakeups.wake([stream_id]),
        name=operation.name,
        accept=accepting(operation, on_busy),
        metrics=services.metrics,
        library=services.library,
        memories=services.memories,
    )


def inbound_record(
    operation: Operation, fence: int, payload: dict[str, Any], *, pause_id: str | None = None, status: str = "running"
) -> InboundRecord:
    """Give the row that a takeover will find."""
    return InboundRecord(
        conversation=operation.conversation,
        operation=operation.id,
        kind=operation.kind,
        status=status,
        stream_id=operation.stream_id,
        turn_id=operation.turn_id,
        fence=fence,
        attempt=1,
        touched=False,
        pause_id=pause_id,
        payload=payload,
        idempotency_key=operation.identity.idempotency_key,
        request_hash=operation.identity.request_hash,
    )


def gmi_input(operation: Operation, turn: TurnInput, prepared: PreparedTurn) -> GmiTurnInput:
    """Give stage 4 its input."""
    persona = prepared.persona
    operation.session.begin(prepared.session)
    operation.degraded, operation.keeps = prepared.degraded, prepared.keeps
    planned = prepared.failure_mode
    if turn.user_feedback is not None:
        note_feedback(operation, turn.user_feedback)
    if prepared.mind:
        note_mind(operation, prepared.mind)
    operation.said, operation.sentiment, operation.persona = prepared.said, prepared.sentiment, persona
    operation.recalled = prepared.recalled
    for warning in prepared.warnings:
        operation.session.trace.note("warning", warning)
    if prepared.new_summary is not None:
        give_summary(operation, prepared.new_summary)
    default = operation.services.policy.max_tool_iterations
    return GmiTurnInput(
        persona=persona,
        model=prepared.model,
        messages=prepared.messages,
        runtime_tools=prepared.runtime_tools,
        host_tools=prepared.host_tools,
        options=turn.options if planned is None else replace(turn.options, tool_failure_mode=planned),
        context=tool_context(operation, persona.id),
        before_step=operation.may_go_on,
        before_effect=operation.before_effect,
        after_round=operation.after_round,
        max_iterations=turn.options.max_tool_iterations or persona.max_tool_iterations or default,
        usage_before=prepared.usage,
        tool_concurrency=operation.services.policy.tool_concurrency,
        on_call=operation.calls.append,
        room=prepared.room,
        session=operation.session,
        prompt=prepared.prompt,
        sources=prepared.sources,
        feedback=turn.user_feedback,
        look_up=look_up(operation, persona),
        terms=terms(turn, persona),
        provider_api_keys=turn.provider_api_keys,
    )


def look_up(operation: Operation, persona: Persona) -> Callable[[str], Awaitable[Sequence[FoundChunk]]] | None:
    """Give what finds passages when a tool has failed; None for a persona that does not ask for it."""
    wanted = persona.retrieval
    if not wanted.enabled or not wanted.on_tool_failure:
        return None

    async def found(text: str) -> Sequence[FoundChunk]:
        while True:
            try:
                return await passages_for(
                    operation.services.library, wanted, operation.caller, operation.conversation, text
                )
            except DatabaseError:
                await asyncio.sleep(RETRY_SECONDS)

    return found


def terms(turn: TurnInput, persona: Persona) -> PauseTerms:
    """Give what holds for the turn's pauses: its own word first, then the persona's."""
    seconds = turn.pause_ttl_seconds if turn.pause_ttl_seconds is not None else persona.pause_ttl_seconds
    return PauseTerms(seconds, turn.on_expiry or persona.on_expiry, had_keys=bool(turn.provider_api_keys))


def tool_context(operation: Operation, persona_id: str) -> ToolContext:
    """Say for whom the operation's tools run."""
    return ToolContext(
        caller=operation.caller,
        conversation_id=operation.conversation_id,
        session_id=operation.session_id,
        persona_id=persona_id,
        turn_id=operation.turn_id,
    )
