"""A continuation: results for a pause, on its stream or by a resume, and the same turn goes on.

Everything that may refuse comes first; then T1 takes the pause and stores the results; then the model writes again
from the pause's snapshot, which is the same on every process.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from app.domain.answers import in_call_order, missing_answers, result_message
from app.domain.errors import ConversationBusyError, InvalidStateError, TooLargeError
from app.domain.jsontext import dumps
from app.domain.messages import Message, ToolCall
from app.domain.pause import PauseEvent, PauseState
from app.domain.persona import Persona
from app.domain.tools import ToolResult
from app.domain.turn import OperationKind, ResultsInput, TurnOptions
from app.store import inbound, messages, pauses, streams
from app.store.database import Connection
from app.store.pauses import PauseRecord
from app.turn.delivery import emitter
from app.turn.gmi.base import GmiTurnInput
from app.turn.orchestrator.execution import Emission, execute
from app.turn.orchestrator.operation import Operation
from app.turn.orchestrator.turn import inbound_record, tool_context
from app.turn.pauses import keeper
from app.turn.pauses.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Continued:
    """A pause that is about to be taken: what is stored of it, and what was kept of its turn."""

    pause: PauseRecord
    snapshot: Snapshot


def check_results(pause: PauseRecord, results: Sequence[ToolResult], *, max_bytes: int) -> None:
    """Refuse results as a whole unless each answers one call, once, in JSON form and size (R77, R83, R201)."""
    calls = {call.id for call in pause.calls}
    unknown = [result.tool_call_id for result in results if result.tool_call_id not in calls]
    if unknown:
        message = f"No call of the pause has the id {unknown[0]!r}; none of the results was taken."
        raise InvalidStateError(message, pause_id=pause.pause_id, tool_call_ids=sorted(calls))
    if len({result.tool_call_id for result in results}) < len(results):
        message = "Two results answer the same call; none of the results was taken."
        raise InvalidStateError(message, pause_id=pause.pause_id)
    for result in results:
        try:
            size = len(dumps(result.to_json()))
        except (TypeError, ValueError):
            message = f"The result of the call {result.tool_call_id!r} has no JSON form; none of the results was taken."
            raise InvalidStateError(message, pause_id=pause.pause_id) from None
        if size > max_bytes:
            message = f"The result of the call {result.tool_call_id!r} is {size} bytes; the limit is {max_bytes}."
            raise TooLargeError(message, pause_id=pause.pause_id, limit=max_bytes)


async def run_continuation(
    operation: Operation, continued: Continued, results: ResultsInput
) -> AsyncIterator[Emission]:
    """Run the continuation. A refusal raises and leaves the pause as it was; else the last item is the outcome."""
    persona = Persona.from_json(continued.snapshot.persona)
    options = results.options
    services = operation.services
    model = options.model or continued.snapshot.options.model or persona.model or services.policy.default_model
    services.providers.resolve(model, has_key=model.partition(":")[0] in results.provider_api_keys)
    gmi = services.gmis.acquire(operation.caller, operation.session_id, persona.id)
    operation.name(gmi_instance_id=gmi.instance_id, persona_id=persona.id)
    if operation.kind is OperationKind.RESUME:
        operation.emit(emitter.system_progress(f"{persona.name} goes on.", 10, "RESUMED"))
    for result in results.results:
        operation.emit(emitter.tool_result_emission(result))
    await _accept(operation, continued.pause, results.results)
    turn = GmiTurnInput(
        persona=persona,
        model=model,
        messages=answered(continued.snapshot.messages, continued.pause.calls, results.results),
        runtime_tools=services.tools.registry.specs(persona.tools),
        host_tools=continued.snapshot.host_tools,
        options=_merged(continued.snapshot.options, options),
        context=tool_context(operation, persona.id),
        before_effect=operation.touch,
        max_iterations=persona.max_tool_iterations or services.policy.max_tool_iterations,
        sources=tuple(continued.snapshot.sources),
        usage_before=continued.snapshot.usage,
        provider_api_keys=results.provider_api_keys,
    )
    async for emission in execute(operation, gmi, turn):
        yield emission


def answered(
    history: tuple[Message, ...], calls: Sequence[ToolCall], results: Sequence[ToolResult]
) -> tuple[Message, ...]:
    """Give the paused turn's messages with every call of its last step answered, in the order of the calls."""
    last = max(index for index, message in enumerate(history) if message.tool_calls)
    own = {message.tool_call_id: message for message in history[last + 1 :]}
    given = in_call_order(calls, [*results, *missing_answers(calls, results)])
    by_call = own | {result.tool_call_id: result_message(result) for result in given}
    return (*history[: last + 1], *(by_call[call.id] for call in history[last].tool_calls))


def _merged(kept: TurnOptions, given: TurnOptions) -> TurnOptions:
    return TurnOptions.from_json({**kept.to_json(), **given.to_json()})


async def _accept(operation: Operation, pause: PauseRecord, results: tuple[ToolResult, ...]) -> None:
    """T1 of a continuation: the pause is taken, results and stand-ins are stored (R93 to R97, R207)."""
    resumed = operation.kind is OperationKind.RESUME
    payload: dict[str, Any] = {
        "persona_id": pause.persona_id,
        "results": [result.to_json() for result in results],
    }

    async def then(connection: Connection, fence: int) -> None:
        seen = await pauses.find(connection, operation.conversation, pause.pause_id, for_update=True)
        if seen is None or seen.state is not PauseState.HELD:
            message = "The pause was continued or ended in the meantime."
            raise InvalidStateError(message, pause_id=pause.pause_id)
        new = await keeper.record(connection, seen, results, resumed=resumed)
        await messages.append(connection, operation.conversation, new if operation.services.policy.persistence else ())
        if resumed:
            await _open_resumed(connection, operation, seen, fence)
        else:
            await streams.run_again(connection, operation.conversation, operation.stream_id, fence)
        await inbound.record(connection, inbound_record(operation, fence, payload, pause.pause_id))

    try:
        await operation.accept(operation.claim(pause.persona_id), then, create=False)
    except ConversationBusyError:
        message = "The pause is being continued by another request."
        raise InvalidStateError(message, pause_id=pause.pause_id) from None


async def _open_resumed(connection: Connection, operation: Operation, pause: PauseRecord, fence: int) -> None:
    """Close the stream that the pause was held on, and open the resume's own (R189)."""
    await keeper.close_stream(
        connection,
        pause,
        by=PauseEvent.RESUMED,
        fence=fence,
        now=operation.services.clock.now(),
        continued_on=operation.stream_id,
    )
    await streams.open_stream(
        connection,
        operation.conversation,
        operation.stream_id,
        turn_id=operation.turn_id,
        persona_id=pause.persona_id,
        fence=fence,
    )
