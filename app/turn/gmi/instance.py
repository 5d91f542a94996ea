"""The runtime's own GMI: model steps and tool rounds until there is an answer, or until the host is needed."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import field, replace
from typing import Any

import structlog

from app.conversation.tokens import Estimate
from app.conversation.valid import valid
from app.domain.answers import result_message
from app.domain.chunks import (
    FinalResponseMarker,
    GmiChunk,
    GmiError,
    GmiOutput,
    SourcesAvailable,
    ToolCallRequest,
    ToolResultRecorded,
)
from app.domain.errors import AppError, ProcessingError
from app.domain.frozen import dataclass
from app.domain.generators import aclosing
from app.domain.ids import row_key
from app.domain.messages import Message, ToolCall
from app.domain.tools import ToolGate
from app.domain.usage import Hop, Usage
from app.observability.metrics import Metrics
from app.providers.base import ModelRequest
from app.providers.gateway import Gateway, Route
from app.streaming.ring import LostFenceError
from app.tools.executor import ToolExecutor
from app.turn.gmi.base import GmiTurnInput
from app.turn.gmi.notes import note_answer, note_calls, note_request, note_results, watched
from app.turn.gmi.round import RoundRules, check_closed, run_round, with_approved
from app.turn.gmi.step import Step
from app.turn.gmi.structured import StructuredReply
from app.turn.gmi.tool_help import ToolHelp


@dataclass(slots=True)
class _Progress:
    """What a turn has so far."""

    messages: list[Message]
    used_ids: dict[str, None]  # as a set it would be three times as large while empty
    texts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    steps: int = 0
    hop: Hop | None = None
    structured: StructuredReply | None = None
    replies: int = 0
    repair: tuple[Message, ...] = ()
    judged: Mapping[str, Any] | None = None
    tool_help: ToolHelp = field(default_factory=ToolHelp)


class RuntimeGmi:
    """Serves every conversation of a session, and keeps none of their messages between operations."""

    def __init__(self, instance_id: str, gateway: Gateway, tools: ToolExecutor, metrics: Metrics | None = None) -> None:
        """Keep what steps and rounds need."""
        self.instance_id = instance_id
        self._gateway = gateway
        self._tools = tools
        self._metrics = metrics or Metrics()

    async def process_turn_stream(self, turn: GmiTurnInput) -> AsyncIterator[GmiChunk | GmiOutput]:
        """See `Gmi.process_turn_stream`. A failure is a `GmiError` chunk and an output that carries the same."""
        used = {call.id: None for message in turn.messages for call in message.tool_calls}
        progress = _Progress(list(turn.messages), used, hop=turn.hop, tool_help=ToolHelp(turn.sources))
        output: GmiOutput | None = None
        try:
            if turn.sources:
                yield SourcesAvailable(turn.sources)
            async with aclosing(self._steps(turn, progress)) as items:
                async for item in items:
                    if isinstance(item, GmiOutput):
                        output = item
                    else:
                        yield item
        except LostFenceError:
            # Another process runs the operation by now: this one stops, and has nothing to say.
            raise
        except Exception as error:  # noqa: BLE001 - a turn's failure is an answer of its own (R295 to R304)
            failure = self._failure(error)
            output = GmiOutput(is_final=True, usage=progress.usage, error=failure, steps=progress.steps)
            yield failure
        yield FinalResponseMarker()
        yield output or GmiOutput(is_final=True, usage=progress.usage)

    async def _steps(self, turn: GmiTurnInput, progress: _Progress) -> AsyncGenerator[GmiChunk | GmiOutput, None]:
        if turn.approved:
            async with aclosing(self._run_approved(turn, progress)) as chunks:
                async for chunk in chunks:
                    yield chunk
        progress.structured = StructuredReply.from_json(turn.options.structured_reply)
        # One step more than there may be rounds: at the limit, a last step without tools writes the answer.
        for index in range(turn.max_iterations + 1):
            await turn.before_step()
            if turn.look_up is not None and await progress.tool_help.found(turn, progress.messages):
                yield SourcesAvailable(progress.tool_help.sources)
            step = self._step(turn, progress, index, last=index == turn.max_iterations)
            note_request(turn.session.trace, step)
            try:
                async with aclosing(step.run()) as chunks:
                    async for chunk in chunks:
                        yield chunk
            finally:
                progress.usage += step.lost
            note_answer(turn.session.trace, step)
            progress.steps += 1
            progress.hop = step.hop
            progress.usage += step.usage or Usage()
            if not step.calls and self._asks_again(progress, step):
                continue
            progress.texts.append(step.text)
            progress.messages.append(step.answer())
            if not step.calls:
                yield self._answer(progress)
                return
            progress.repair = ()
            async with aclosing(self._round(turn, progress, step)) as items:
                async for item in items:
                    yield item
                    if isinstance(item, GmiOutput):
                        return

    def _asks_again(self, progress: _Progress, step: Step) -> bool:
        """Tell whether the reply does not fit and is asked for once more; the next one then begins from nothing."""
        wanted, judged = progress.structured, step.judged
        if wanted is None or judged is None:
            return False
        progress.replies += 1
        progress.texts.clear()
        if judged.issues and progress.replies <= wanted.max_retries and not step.last:
            progress.repair = wanted.repair(step.text, judged.issues)
            return True
        if judged.issues and wanted.on_exhausted == "error":
            raise wanted.exhausted(judged, progress.replies)
        progress.judged = wanted.told(judged, progress.replies, step.enforcement)
        return False

    def _step(self, turn: GmiTurnInput, progress: _Progress, index: int, *, last: bool) -> Step:
        options, persona = turn.options, turn.persona.options
        route = Route(turn.model, start=progress.hop, api_keys=turn.provider_api_keys)
        request = ModelRequest(
            model=turn.model,
            messages=(*self._valid(turn, progress), *progress.repair),
            tools=() if last else (*turn.runtime_tools, *turn.host_tools),
            temperature=options.temperature if options.temperature is not None else persona.temperature,
            top_p=options.top_p if options.top_p is not None else persona.top_p,
            max_tokens=options.max_tokens or persona.max_tokens,
            response_format=options.response_format,
            reasoning_effort=options.reasoning_effort or persona.reasoning_effort,
            extra_body=persona.extra_body,
            extra_headers=persona.extra_headers,
            user=turn.context.caller.user_id,
            cache_key=row_key(turn.context.caller.organization_id, turn.context.conversation_id).hex,
        )
        if progress.structured is not None:
            request = progress.structured.asked_of(request)
        approvals = (tool for tool in turn.runtime_tools if self._tools.registry.rules(tool.name).requires_approval)
        waiting = tuple(tool.name for tool in (*turn.host_tools, *approvals))
        counter = turn.room.counter if turn.room is not None else Estimate()
        return Step(
            index,
            self._gateway,
            route,
            request,
            progress.used_ids,
            waiting,
            watched(turn.session.trace, turn.on_call),
            counter,
            last=last,
            structured=progress.structured,
        )

    def _valid(self, turn: GmiTurnInput, progress: _Progress) -> tuple[Message, ...]:
        """Give what may be sent, and go on from that: a pause keeps what its model was told (see `valid`)."""
        told = valid(progress.messages)
        if told.repairs:
            structlog.get_logger(__name__).warning("request.repaired", repairs=told.repairs, **told.faults)
            self._metrics.repaired(told.faults)
            turn.session.trace.note(
                "warning", f"{told.repairs} faults of the messages were mended.", details=told.faults
            )
        progress.messages[:] = told.messages
        if turn.room is not None:
            spoken = [message for message in told.messages if message.role != "system"]
            # A turn that has grown by its tools' results may use up what is kept for the answer.
            turn.room.check(spoken, "The request", slack=turn.room.answer)
        return told.messages

    async def _round(
        self, turn: GmiTurnInput, progress: _Progress, step: Step
    ) -> AsyncGenerator[GmiChunk | GmiOutput, None]:
        """Run the runtime's calls and record them; then stop, when the host has calls to run as well."""
        rules = self._rules(turn)
        for_host = tuple(asked for call in step.calls if (asked := self._for_host(turn, rules, call)) is not None)
        waiting = {call.id for call in for_host}
        own = [call for call in step.calls if call.id not in waiting]
        note_calls(turn, step.calls, for_host=for_host)
        if own:
            await turn.before_effect()
            results = await run_round(own, progress.messages[:-1], rules, self._tools, turn.context)
            note_results(turn, results)
            for result in results:
                progress.messages.append(result_message(result))
                yield ToolResultRecorded(result)
            await turn.after_round(own, results)
            progress.calls += own
            check_closed(results, rules)
        if for_host:
            yield ToolCallRequest(for_host, external=True)
            yield GmiOutput(
                is_final=False,
                response_text="".join(progress.texts) or None,
                tool_calls=for_host,
                usage=progress.usage,
                rag_sources=progress.tool_help.sources,
                history=tuple(progress.messages),
                steps=progress.steps,
                hop=progress.hop,
            )

    def _for_host(self, turn: GmiTurnInput, rules: RoundRules, call: ToolCall) -> ToolCall | None:
        """Give the call as the host is asked for it: to run it, or to agree to it; None when it is the runtime's."""
        if call.invalid is not None or not rules.gate.lets_pass(call.name):
            return None
        if any(tool.name == call.name for tool in turn.host_tools):
            return call
        registry = self._tools.registry
        if call.name not in rules.offered or not registry.rules(call.name).requires_approval:
            return None
        return replace(call, needs_approval=True) if self._tools.argument_fault(call) is None else None

    async def _run_approved(self, turn: GmiTurnInput, progress: _Progress) -> AsyncGenerator[GmiChunk, None]:
        """Run the calls that a person has agreed to, and put their results where the model expects them."""
        await turn.before_effect()
        rules = self._rules(turn)
        results = await run_round(turn.approved, (), rules, self._tools, turn.context)
        progress.messages[:], results = with_approved(progress.messages, turn.approved, results)
        note_results(turn, results)
        for result in results:
            yield ToolResultRecorded(result)
        await turn.after_round(turn.approved, results)
        progress.calls += turn.approved
        check_closed(results, rules)

    def _answer(self, progress: _Progress) -> GmiOutput:
        return GmiOutput(
            is_final=True,
            response_text="".join(progress.texts) or None,
            tool_calls=tuple(progress.calls),
            usage=progress.usage,
            rag_sources=progress.tool_help.sources,
            history=tuple(progress.messages),
            steps=progress.steps,
            hop=progress.hop,
            structured=progress.judged,
        )

    def _rules(self, turn: GmiTurnInput) -> RoundRules:
        return RoundRules(
            offered=frozenset(tool.name for tool in turn.runtime_tools),
            gate=ToolGate.from_json(turn.options.tool_gate),
            failure_mode=turn.options.tool_failure_mode or turn.persona.tool_failure_mode,
            concurrency=turn.tool_concurrency,
            denied=self._tools.registry.denied(turn.persona),
        )

    def _failure(self, error: Exception) -> GmiError:
        if isinstance(error, AppError):
            return GmiError(error.code, error.message, error.details)
        structlog.get_logger(__name__).exception("gmi.turn_failed")
        return GmiError(ProcessingError.code, f"The turn failed: {type(error).__name__}: {str(error)[:300]}")
