"""A continuation: results for a pause, on its stream or by a resume, and the same turn goes on.

Everything that may refuse comes first; then T1 takes the pause and stores the results; then the model writes again
from the pause's snapshot, which is the same on every process.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from app.domain.answers import result_message
from app.domain.approval import approved_calls
from app.domain.chunks import StreamChunk
from app.domain.errors import ConversationBusyError, InvalidStateError
from app.domain.frozen import dataclass
from app.domain.messages import Message, text_of
from app.domain.pause import PauseEvent, PauseState
from app.domain.persona import Persona
from app.domain.session import SessionKey
from app.domain.tools import ToolResult
from app.domain.turn import OperationKind, ResultsInput, TurnOptions
from app.providers.gateway import Route
from app.store import acceptance, pauses, sessions
from app.store.database import Connection
from app.store.pauses import PauseRecord
from app.turn.delivery import emitter
from app.turn.gmi.base import Gmi, GmiTurnInput, takes_results_together
from app.turn.orchestrator.execution import Emissions, execute
from app.turn.orchestrator.operation import Opening, Operation
from app.turn.orchestrator.turn import inbound_record, look_up, tool_context
from app.turn.pauses import keeper, seating
from app.turn.pauses.history import answered
from app.turn.pauses.results import check_results, merged
from app.turn.pauses.snapshot import Snapshot
from app.turn.preparation.room import room_for


@dataclass(slots=True)
class Continued:
    """A pause that is about to be taken, and what was kept of its turn. T1 fills in the results as they were stored.

    `expired` tells that nobody answered in time, and the turn goes on without answers.
    """

    pause: PauseRecord
    snapshot: Snapshot
    expired: bool = False
    results: list[ToolResult] = field(default_factory=list)


async def run_continuation(operation: Operation, continued: Continued, results: ResultsInput) -> Emissions:
    """Accept the continuation; what is given runs it, and its last item is the outcome.

    A refusal raises and leaves the pause as it was.
    """
    persona = Persona.from_json(continued.snapshot.persona)
    services = operation.services
    options = merged_options(continued.snapshot, results.options)
    services.gateway.check(_route(operation, continued.snapshot, options, results.provider_api_keys))
    gmi = await services.gmis.acquire(operation.caller, operation.session_id, persona.id)
    operation.language = continued.snapshot.language
    operation.name(gmi.instance_id, persona)
    if len(results.results) > 1 and not takes_results_together(gmi):
        message = "This agent takes one result at a time; send one result, and the other calls are answered as not run."
        raise InvalidStateError(message, pause_id=continued.pause.pause_id)
    seating.seat(gmi, continued.pause, continued.snapshot, persistence=services.policy.persistence)
    await _accept(operation, continued, results)
    return await go_on(operation, continued, options, results.provider_api_keys)


def merged_options(snapshot: Snapshot, given: TurnOptions) -> TurnOptions:
    """Give the paused turn's options with those that came with the results."""
    return TurnOptions.from_json({**snapshot.options.to_json(), **given.to_json()})


async def go_on(
    operation: Operation, continued: Continued, options: TurnOptions, provider_api_keys: Mapping[str, str]
) -> Emissions:
    """Prepare what follows T1: the model writes again from the snapshot and the stored results."""
    persona = Persona.from_json(continued.snapshot.persona)
    kept, services = continued.snapshot, operation.services
    route = _route(operation, kept, options, provider_api_keys)
    model = route.model_id
    longest = options.max_tool_iterations or persona.max_tool_iterations or services.policy.max_tool_iterations
    gmi = await services.gmis.acquire(operation.caller, operation.session_id, persona.id)
    key = SessionKey.of(operation.caller, operation.session_id)
    operation.session.begin(await services.database.read(lambda connection: sessions.find(connection, key)))
    runtime_tools = services.tools.registry.offered_to(persona, kept.runtime_tools)
    tools = [*runtime_tools, *kept.host_tools]
    operation.owe(continued.pause.calls, continued.results)
    operation.flags = options.custom_flags
    turn = GmiTurnInput(
        persona=persona,
        model=model,
        messages=_told(gmi, continued, persistence=services.policy.persistence),
        approved=approved_calls(continued.pause.calls, continued.results),
        runtime_tools=runtime_tools,
        host_tools=kept.host_tools,
        options=options,
        context=tool_context(operation, persona.id),
        before_step=operation.may_go_on,
        before_effect=operation.before_effect,
        after_round=operation.after_round,
        max_iterations=longest,
        sources=tuple(kept.sources),
        look_up=look_up(operation, persona),
        usage_before=kept.usage,
        tool_concurrency=services.policy.tool_concurrency,
        hop=route.start,
        on_call=operation.calls.append,
        terms=kept.terms,
        room=room_for(
            model,
            persona,
            tools,
            options,
            counters=services.counters,
            policy=services.policy.history,
            system=_system_of(kept, persona),
        ),
        session=operation.session,
        provider_api_keys=provider_api_keys,
    )
    return execute(operation, gmi, turn, continued.results)


def _told(gmi: Gmi, continued: Continued, *, persistence: bool) -> tuple[Message, ...]:
    """Give the paused turn's messages with the answers that the GMI takes."""
    calls = continued.pause.calls
    history = seating.history(gmi, continued.pause, continued.snapshot, persistence=persistence)
    if takes_results_together(gmi):
        return answered(history, calls, continued.results)
    return (*history, *map(result_message, continued.results))


def _system_of(kept: Snapshot, persona: Persona) -> str:
    """Give the prompt that the paused step was sent, with all that was in it."""
    first = kept.messages[0] if kept.messages else None
    return text_of(first.content) if first is not None and first.role == "system" else persona.system_prompt


def _route(operation: Operation, kept: Snapshot, options: TurnOptions, keys: Mapping[str, str]) -> Route:
    """Give the model that goes on: that of the turn, from the hop that served it, unless the results name another."""
    own = Persona.from_json(kept.persona).model or operation.services.policy.default_model
    before = kept.model or kept.options.model or own
    model = options.model if options.model not in (None, kept.options.model) else before
    return Route(model, start=kept.hop if model == before else None, api_keys=keys)


async def _accept(operation: Operation, continued: Continued, given: ResultsInput) -> None:
    """T1 of a continuation: the pause is taken, results and stand-ins are stored (R93 to R97, R207)."""
    pause_id = continued.pause.pause_id
    resumed = operation.kind is OperationKind.RESUME
    results = given.results

    async def then(connection: Connection, fence: int, opening: Opening) -> None:
        payload: dict[str, Any] = {
            "persona_id": continued.pause.persona_id,
            "session_id": operation.session_id,
            "results": [result.to_json() for result in results],
            "options": given.options.to_json(),
            "had_provider_keys": bool(given.provider_api_keys),
        }
        seen = await pauses.find(connection, operation.conversation, pause_id, for_update=True)
        if seen is None or seen.state is not PauseState.HELD:
            message = "The pause was continued or ended in the meantime."
            raise InvalidStateError(message, pause_id=pause_id)
        check_results(seen, results)
        continued.results = merged(seen, results)
        operation.owe(seen.calls, continued.results)
        new = await keeper.record(connection, seen, continued.results, resumed=resumed)
        persistence = operation.services.policy.persistence
        await acceptance.accept(
            connection,
            inbound_record(operation, fence, payload, pause_id=pause_id),
            persona_id=seen.persona_id,
            ephemeral=not persistence,
            new=new if persistence else (),
            batches=opening(_first_chunks(operation, continued)),
        )
        if resumed:
            await _close_paused(connection, operation, seen, fence)

    try:
        await operation.accept(operation.claim(continued.pause.persona_id), then, create=False)
    except ConversationBusyError:
        message = "The pause is being continued by another request."
        raise InvalidStateError(message, pause_id=pause_id) from None
    if resumed:
        operation.services.wakeups.wake([continued.pause.stream_id])  # it is closed, which its readers wait for


def _first_chunks(operation: Operation, continued: Continued) -> list[StreamChunk]:
    """Give what a continuation says first: that it goes on, what resolved the pause, and the host's results."""
    chunks = []
    if operation.kind is OperationKind.RESUME and operation.persona is not None:
        chunks.append(emitter.system_progress(f"{operation.persona.name} goes on.", 10, "RESUMED"))
    if continued.expired:
        resolved = {"pause_id": continued.pause.pause_id, "by": PauseEvent.EXPIRED.value}
        chunks.append(emitter.metadata_update({"pause_resolved": resolved}))
    return [*chunks, *map(emitter.tool_result_emission, continued.results)]


async def _close_paused(connection: Connection, operation: Operation, pause: PauseRecord, fence: int) -> None:
    """Close the stream that the pause was held on, since the resume goes on on its own (R189)."""
    await keeper.close_stream(
        connection,
        pause,
        by=PauseEvent.RESUMED,
        fence=fence,
        now=operation.services.clock.now(),
        continued_on=operation.stream_id,
    )
