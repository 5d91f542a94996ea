"""Guardrails at the front of an operation: are the required ones there, may the input in, and who judges the output."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import structlog

from app.domain.errors import TurnTimeoutError
from app.domain.persona import Persona
from app.domain.turn import TurnInput, TurnOptions
from app.guardrails.active import ActiveGuard
from app.guardrails.base import GuardContext, Sources, Spent, shown
from app.guardrails.incoming import judge_input, refuse_blocked
from app.guardrails.outgoing import OutputJudge
from app.guardrails.registry import Guards
from app.turn.facade.guarded_stream import GuardedStream
from app.turn.gmi.structured import StructuredReply
from app.turn.orchestrator.execution import Begin, Emissions
from app.turn.orchestrator.operation import Operation
from app.turn.orchestrator.rerun import Rerun
from app.turn.orchestrator.turn import run_turn
from app.turn.pauses.snapshot import Snapshot

_log = structlog.get_logger("app.turn")


class GuardStage:
    """The guards as the facade uses them; the same for turns, continuations and resumes."""

    def __init__(self, guards: Guards) -> None:
        """Keep the guards."""
        self._guards = guards

    def active(self, persona: Persona) -> tuple[ActiveGuard, ...]:
        """Give the guards of an operation; GuardrailMissingError before anything else has happened (R18, R19)."""
        return self._guards.active(persona.guardrails)

    async def begin(
        self, operation: Operation, turn: TurnInput, persona: Persona, seconds: float
    ) -> tuple[GuardedStream | None, Begin]:
        """Give what judges the turn's stream, and the turn itself, its input judged or being judged.

        Raises GuardrailMissingError and GuardrailBlockedError; nothing is stored then.
        """
        active = self.active(persona)
        guard = self._output_of(active, operation, turn.persona_id, turn.options)
        if not any(entry.has("input") for entry in active):
            return guard, partial(run_turn, operation, turn)
        if self._guards.judges_input_beside:
            return guard, partial(self._run_beside, active, turn, operation, seconds)
        return guard, partial(run_turn, operation, await self._admit(active, turn, operation, seconds))

    def of_continuation(
        self, active: tuple[ActiveGuard, ...], operation: Operation, snapshot: Snapshot
    ) -> GuardedStream | None:
        """Give what judges a continuation's stream, with the identity and the sources of its pause."""
        return self._output_of(active, operation, snapshot.persona.get("id"), snapshot.options, snapshot.sources)

    def again(self, operation: Operation, rerun: Rerun) -> GuardedStream | None:
        """Give what judges an operation that is run once more; its input was judged before it was accepted."""
        persona = operation.persona or Persona("", "", "")
        active = self.active(persona)
        return self._output_of(active, operation, persona.id, rerun.options, rerun.sources)

    async def _admit(
        self, active: tuple[ActiveGuard, ...], turn: TurnInput, operation: Operation, seconds: float
    ) -> TurnInput:
        """Give the turn as it may go on; GuardrailBlockedError when it may not: nothing is stored then (R3, R20)."""
        context = context_of(operation, turn.persona_id, turn.options.custom_flags)
        try:
            async with asyncio.timeout(seconds):
                verdict = await judge_input(self._guards.asking, active, context, turn)
        except TimeoutError:
            message = f"The input was not judged within {seconds:g} seconds."
            raise TurnTimeoutError(message) from None
        if verdict.block is not None:
            _log.info("guardrail.input_blocked", guardrail_id=verdict.block.guard_id, code=verdict.block.code)
        refuse_blocked(verdict)
        if verdict.entries:
            operation.note_on_first({"guardrail": {"input": shown(verdict.entries)}})
        return verdict.value

    async def _run_beside(
        self, active: tuple[ActiveGuard, ...], turn: TurnInput, operation: Operation, seconds: float
    ) -> Emissions:
        """Prepare the turn while its input is judged; it waits for the verdict before anything is stored."""
        judging = asyncio.create_task(self._admit(active, turn, operation, seconds))
        try:
            return await run_turn(operation, turn, lambda: judging)
        finally:
            judging.cancel()
            await asyncio.wait({judging})
            if not judging.cancelled():
                judging.exception()

    def _output_of(
        self,
        active: tuple[ActiveGuard, ...],
        operation: Operation,
        persona_id: str | None,
        options: TurnOptions,
        sources: Sources = (),
    ) -> GuardedStream | None:
        """Give what judges the operation's stream; None when no guard does, and then it costs nothing."""
        if not any(guard.has("output") for guard in active):
            return None
        context = context_of(operation, persona_id, options.custom_flags)
        judge = OutputJudge(self._guards.asking, active, context, sources)
        schema = StructuredReply.from_json(options.structured_reply)
        return GuardedStream(operation, judge, self._guards, self._guards.mode, schema=schema)


def context_of(operation: Operation, persona_id: str | None, flags: Mapping[str, Any]) -> GuardContext:
    """Say for whom guards are asked."""
    return GuardContext(
        user_id=operation.caller.user_id,
        session_id=operation.session_id,
        persona_id=persona_id,
        conversation_id=operation.conversation_id,
        organization_id=operation.caller.organization_id,
        metadata=flags,
        spent=lambda: Spent(
            operation.tally.usage.total_tokens, sum(call.cost for call in operation.calls if call.cost is not None)
        ),
        on_call=operation.calls.append,
    )
