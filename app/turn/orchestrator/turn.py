"""A turn: preparation (T1 is in its phase 8), the GMI, delivery. T2 is the publisher's, once the end is judged."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from app.domain.turn import OperationKind, TurnInput
from app.store import inbound, streams
from app.store.database import Connection
from app.store.inbound import InboundRecord
from app.tools.base import ToolContext
from app.turn.gmi.base import GmiTurnInput
from app.turn.orchestrator.execution import Emission, execute
from app.turn.orchestrator.operation import Operation
from app.turn.preparation.draft import PhaseServices, PreparedTurn, TurnDraft
from app.turn.preparation.pipeline import prepare


async def run_turn(operation: Operation, turn: TurnInput) -> AsyncIterator[Emission]:
    """Run the turn. A refusal before T1 raises and leaves no trace; afterwards the last item is the outcome."""
    draft = TurnDraft(turn=turn, stream_id=operation.stream_id, turn_id=operation.turn_id)
    prepared = await prepare(draft, phase_services(operation))
    async for emission in execute(operation, prepared.gmi, gmi_input(operation, turn, prepared)):
        yield emission


def phase_services(operation: Operation) -> PhaseServices:
    """Give the phases what they may use, with the operation's voice and its T1."""
    services = operation.services

    async def accept(store: Callable[[Connection, int], Awaitable[None]], payload: dict[str, Any]) -> None:
        async def then(connection: Connection, fence: int) -> None:
            await store(connection, fence)
            await streams.open_stream(
                connection,
                operation.conversation,
                operation.stream_id,
                turn_id=operation.turn_id,
                persona_id=payload["persona_id"],
                fence=fence,
            )
            await inbound.record(connection, inbound_record(operation, fence, payload))

        await operation.accept(operation.claim(payload["persona_id"]), then, create=True)

    return PhaseServices(
        database=services.database,
        clock=services.clock,
        personas=services.personas,
        gmis=services.gmis,
        providers=services.providers,
        tools=services.tools.registry,
        policy=services.policy,
        emit=operation.emit,
        name=lambda gmi, persona: operation.name(gmi_instance_id=gmi, persona_id=persona),
        accept=accept,
    )


def inbound_record(
    operation: Operation, fence: int, payload: dict[str, Any], pause_id: str | None = None
) -> InboundRecord:
    """Give the row that a takeover will find."""
    return InboundRecord(
        conversation=operation.conversation,
        operation=operation.id,
        kind=OperationKind(operation.kind),
        status="running",
        stream_id=operation.stream_id,
        turn_id=operation.turn_id,
        fence=fence,
        attempt=1,
        touched=False,
        pause_id=pause_id,
        payload=payload,
    )


def gmi_input(operation: Operation, turn: TurnInput, prepared: PreparedTurn) -> GmiTurnInput:
    """Give stage 4 its input."""
    persona = prepared.persona
    default = operation.services.policy.max_tool_iterations
    return GmiTurnInput(
        persona=persona,
        model=prepared.model,
        messages=prepared.messages,
        runtime_tools=prepared.runtime_tools,
        host_tools=prepared.host_tools,
        options=turn.options,
        context=tool_context(operation, persona.id),
        before_effect=operation.touch,
        max_iterations=turn.options.max_tool_iterations or persona.max_tool_iterations or default,
        provider_api_keys=turn.provider_api_keys,
    )


def tool_context(operation: Operation, persona_id: str) -> ToolContext:
    """Say for whom the operation's tools run."""
    return ToolContext(
        caller=operation.caller,
        conversation_id=operation.conversation_id,
        session_id=operation.session_id,
        persona_id=persona_id,
        turn_id=operation.turn_id,
    )
