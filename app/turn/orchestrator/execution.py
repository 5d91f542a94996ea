"""Stages 4 and 5 of any operation: the GMI runs, its chunks become stream chunks, its output becomes the outcome."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from app.domain.chunks import GmiError, GmiOutput, StreamChunk
from app.domain.errors import AppError
from app.domain.generators import aclosing
from app.domain.ids import fresh
from app.domain.messages import Message
from app.domain.outcomes import Ended
from app.domain.tools import ToolResult
from app.domain.turn import StreamStatus
from app.store.messages import NewMessage
from app.streaming.manager import AsyncStreamClientBridge
from app.turn.delivery import emitter, final_response
from app.turn.delivery.requests import HeldRequests
from app.turn.delivery.transform import to_stream
from app.turn.gmi.base import Gmi, GmiTurnInput
from app.turn.orchestrator import closing
from app.turn.orchestrator.effects import NewPause, Outcome
from app.turn.orchestrator.operation import Operation
from app.turn.orchestrator.prompting import keep_prompt
from app.turn.orchestrator.reflection import reflect_behind
from app.turn.orchestrator.tracing import note_start
from app.turn.orchestrator.turn_documents import keep_turn_behind
from app.turn.pauses.history import kept
from app.turn.pauses.rule import stops_for_host
from app.turn.pauses.snapshot import Snapshot

Emission = StreamChunk | Outcome
Emissions = AsyncGenerator[Emission, None]

Begin = Callable[[], Awaitable[Emissions]]
"""Prepares an operation and takes it through T1; what it gives says the rest. Its own refusals are raised."""


async def execute(operation: Operation, gmi: Gmi, turn: GmiTurnInput, results: Sequence[ToolResult] = ()) -> Emissions:
    """Yield the stream's chunks as they come, and last of all the operation's outcome.

    `results` are those that a continuation goes on from.
    """
    note_start(operation, turn.messages, results)
    if operation.services.policy.keep_prompts:
        await keep_prompt(operation, turn)
    if turn.persona.meta_prompts and operation.services.policy.persistence:
        operation.afterwards.append(partial(reflect_behind, operation, turn))
    if turn.persona.retrieval.keeps and operation.services.policy.persistence:
        operation.afterwards.append(partial(keep_turn_behind, operation, turn))
    held = HeldRequests()
    operation.tally.before = turn.usage_before
    output = GmiOutput(is_final=True)
    failure: GmiError | None = None
    async with aclosing(gmi.process_turn_stream(turn)) as items:
        async for item in items:
            if isinstance(item, GmiOutput):
                output = item
                continue
            if isinstance(item, GmiError):
                failure = item
            operation.tally.count(item)
            chunk = to_stream(item, held)
            if chunk is not None:
                yield chunk
    if stops_for_host(output):
        yield _pause(operation, turn, output, held)
    else:
        yield _end(operation, turn, output, failure or output.error)


def _pause(operation: Operation, turn: GmiTurnInput, output: GmiOutput, held: HeldRequests) -> Outcome:
    """The turn stops: one request that names exactly the saved calls, behind the pause's own writes (R219 to R227)."""
    streamed = held.matching(output)
    rationale = (streamed.rationale if streamed else None) or output.response_text
    usage = turn.usage_before + output.usage
    pause_id = fresh("pause")
    snapshot = Snapshot(
        messages=kept(output.history, turn.messages, output.tool_calls, output.response_text),
        persona=turn.persona.to_json(),
        host_tools=turn.host_tools,
        options=turn.options,
        usage=usage,
        sources=output.rag_sources or turn.sources,
        terms=turn.terms,
        model=turn.model,
        hop=output.hop,
        language=operation.language,
        runtime_tools=tuple(tool.name for tool in turn.runtime_tools),
    )
    request = emitter.host_tool_request(
        output.tool_calls,
        pause_id=pause_id,
        rationale=rationale,
        metadata=streamed.metadata if streamed else None,
    )
    message = Message(
        "assistant",
        output.response_text,
        tool_calls=output.tool_calls,
        metadata={"source": "output_tool_calls", "persona_id": turn.persona.id},
    )
    return Outcome(
        status=StreamStatus.PAUSED,
        chunks=(request,),
        usage=usage,
        messages=_kept(operation, message),
        pause=NewPause(pause_id, output.tool_calls, rationale, snapshot),
        text=output.response_text,
    )


def _end(operation: Operation, turn: GmiTurnInput, output: GmiOutput, failure: GmiError | None) -> Outcome:
    """The turn is over: its reply is kept, and exactly one `final_response` says so (R36 to R41, R300 to R304)."""
    services = operation.services
    text = output.response_text
    reply = None
    if text and text.strip():
        metadata = {"source": "output", "persona_id": turn.persona.id}
        reply = NewMessage(fresh("msg"), Message("assistant", text, metadata=metadata), operation.turn_id)
    usage = turn.usage_before + output.usage
    payload = final_response.build(
        output if output.rag_sources else replace(output, rag_sources=turn.sources),
        usage=usage,
        turn_id=operation.turn_id,
        message_id=reply.message_id if reply and services.policy.persistence else None,
        persona=turn.persona,
        plain_text=services.plain_text,
    )
    before = (
        (emitter.error(failure.code, failure.message, failure.details), *closing.failed(operation, failure.code))
        if failure
        else closing.done(operation, Ended(text, len(output.tool_calls), degraded=operation.degraded))
    )
    return Outcome(
        status=StreamStatus.FAILED if failure else StreamStatus.COMPLETED,
        chunks=(*before, emitter.final_response(payload)),
        usage=usage,
        messages=_kept(operation, reply),
        final_response=payload,
        error=failure.to_json() if failure else None,
        text=text,
    )


def outside_failure(operation: Operation, error: AppError) -> Outcome:
    """Give the outcome of a failure outside the GMI turn: an `error`, and no `final_response` (R305)."""
    return Outcome(
        status=StreamStatus.FAILED,
        chunks=(*closing.failed(operation, error.code), emitter.error(error.code, error.message)),
        usage=operation.tally.usage,
        error={"code": error.code, "message": error.message},
    )


def cut_short(operation: Operation, status: StreamStatus, reason: str, error: AppError | None = None) -> Outcome:
    """Give the outcome of an operation that was ended from outside: its text so far is its reply, its usage is kept."""
    text = operation.tally.text
    persona = operation.persona
    failure = GmiError(error.code, error.message) if error else None
    reply = None
    if text.strip() and persona is not None:
        metadata = {"source": "output", "persona_id": persona.id, reason: True}
        reply = NewMessage(fresh("msg"), Message("assistant", text, metadata=metadata), operation.turn_id)
    kept = _kept(operation, reply)
    payload = final_response.build(
        GmiOutput(is_final=True, response_text=text or None, error=failure),
        usage=operation.tally.usage,
        turn_id=operation.turn_id,
        message_id=kept[0].message_id if kept else None,
        persona=persona or operation.services.personas.known(""),
        plain_text=operation.services.plain_text,
    )
    said = (emitter.error(failure.code, failure.message), *closing.failed(operation, failure.code)) if failure else ()
    return Outcome(
        status=status,
        chunks=(*said, emitter.final_response(payload)),
        usage=operation.tally.usage,
        messages=kept,
        final_response=payload,
        error=failure.to_json() if failure else None,
        close_reason=reason if status is StreamStatus.CANCELLED else None,
        text=text or None,
    )


def _kept(operation: Operation, message: Message | NewMessage | None) -> tuple[NewMessage, ...]:
    """Give what the conversation keeps: nothing with persistence off (R53, R121)."""
    if message is None or not operation.services.policy.persistence:
        return ()
    if isinstance(message, NewMessage):
        return (message,)
    return (NewMessage(fresh("msg"), message, operation.turn_id),)


class Saying:
    """An operation as the facade's client drives it: what it says next goes to the streaming manager (R242)."""

    __slots__ = ("_begin", "_emissions", "_manager", "_named")

    def __init__(self, operation: Operation, begin: Begin, run: object) -> None:
        """Nothing begins before the client is read. `run` names this run of the operation."""
        self._manager = operation.services.streaming
        self._named = (run, operation.conversation)
        self._begin: Begin | None = begin
        self._emissions: Emissions | None = None

    async def more(self) -> None:
        """Push what the operation says next."""
        if self._begin is not None:
            begin, self._begin = self._begin, None
            self._emissions = await begin()
            del begin
        try:
            said = await anext(self._emissions)  # type: ignore[arg-type]
        except StopAsyncIteration:
            self._manager.end(*self._named)
        else:
            self._manager.push(*self._named, said)

    async def aclose(self) -> None:
        """Stop the operation where it stands."""
        self._manager.end(*self._named)
        if self._emissions is not None:
            await self._emissions.aclose()


class read_back:  # noqa: N801 - it reads as a verb
    """Gives the client through which the facade reads an operation; it is one of the stream's clients (R243)."""

    __slots__ = ("_bridge", "_manager", "_run")

    def __init__(self, operation: Operation, begin: Begin) -> None:
        """Nothing begins before the block is read in.

        An operation that this process has lost may run here again before its lost run has ended, so each run has a
        client of its own.
        """
        self._run = object()
        self._manager = operation.services.streaming
        self._bridge = AsyncStreamClientBridge[Emission](feed=Saying(operation, begin, self._run))

    async def __aenter__(self) -> AsyncStreamClientBridge[Emission]:
        self._manager.begin(self._run, self._bridge)
        return self._bridge

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._bridge.aclose()
        finally:
            self._manager.leave(self._run)
