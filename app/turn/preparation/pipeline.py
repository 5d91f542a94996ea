"""The twelve phases in their order (R246). What fails before phase 8 stores nothing and leaves a held pause alone."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from enum import Enum
from typing import Any, Final

import structlog

from app.domain.chunks import StreamChunk
from app.domain.errors import DatabaseError
from app.domain.frozen import dataclass
from app.domain.messages import Message, text_of
from app.domain.persona import MemoryUse
from app.observability.spans import tracer
from app.store.messages import NewMessage
from app.turn.preparation.draft import PhaseServices, PreparedTurn, TurnDraft
from app.turn.preparation.phases import (
    p01_validate,
    p02_acquire_gmi,
    p03_stream_context,
    p04_gmi_input,
    p05_plan,
    p06_execution_policy,
    p07_memory_policy,
    p08_persist_inbound,
    p09_summary,
    p10_prompt_profile,
    p11_recall,
    p12_history,
)
from app.turn.preparation.prompt import system_message

Run = Callable[[TurnDraft, PhaseServices], Awaitable[None]]


class Rule(Enum):
    """What a phase's failure does to its turn."""

    REFUSE = "the turn is refused: nothing is stored, and a held pause stays"
    WAIT = "the turn has been accepted: a database that is away is waited for, any other failure ends the turn"
    GO_ON = "the turn goes on without what the phase would have added"


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase: its name, which its span has as well, what it does, and what its failure does."""

    name: str
    run: Run
    rule: Rule


PHASES: Final[tuple[Phase, ...]] = (
    Phase("validate", p01_validate.run, Rule.REFUSE),
    Phase("acquire_gmi", p02_acquire_gmi.run, Rule.REFUSE),
    Phase("stream_context", p03_stream_context.run, Rule.REFUSE),
    Phase("gmi_input", p04_gmi_input.run, Rule.REFUSE),
    Phase("plan", p05_plan.run, Rule.REFUSE),
    Phase("execution_policy", p06_execution_policy.run, Rule.REFUSE),
    Phase("memory_policy", p07_memory_policy.run, Rule.REFUSE),
    Phase("persist_inbound", p08_persist_inbound.run, Rule.REFUSE),
    Phase("summary", p09_summary.run, Rule.WAIT),
    Phase("prompt_profile", p10_prompt_profile.run, Rule.GO_ON),
    Phase("recall", p11_recall.run, Rule.GO_ON),
    Phase("history", p12_history.run, Rule.WAIT),
)
"""The phases, in the order in which a turn passes them, and the one place that says what their failures do."""

ACCEPTING: Final = next(place for place, phase in enumerate(PHASES) if phase.run is p08_persist_inbound.run)
RETRY_SECONDS: Final = 0.25


async def prepare(draft: TurnDraft, services: PhaseServices, phases: Sequence[Phase] = PHASES) -> PreparedTurn:
    """Run the phases one after another. Raises what a phase raises, where its rule says so; an `AppError` as it is."""
    spans = tracer("fermata.preparation")
    for phase in phases:
        with spans.start_as_current_span(f"preparation.{phase.name}") if spans is not None else nullcontext():
            await _RUN[phase.rule](phase, draft, services)
    return finished(draft)


async def _refusing(phase: Phase, draft: TurnDraft, services: PhaseServices) -> None:
    await phase.run(draft, services)


async def _waiting(phase: Phase, draft: TurnDraft, services: PhaseServices) -> None:
    while True:
        try:
            return await phase.run(draft, services)
        except DatabaseError:
            await asyncio.sleep(RETRY_SECONDS)


async def _going_on(phase: Phase, draft: TurnDraft, services: PhaseServices) -> None:
    try:
        await phase.run(draft, services)
    except Exception as error:  # noqa: BLE001 - what these phases add is not worth a turn
        structlog.get_logger(__name__).warning("preparation.went_on", phase=phase.name, error=repr(error))
        draft.routing[phase.name] = {"failed": True}


_RUN: Final = {Rule.REFUSE: _refusing, Rule.WAIT: _waiting, Rule.GO_ON: _going_on}


async def prepare_again(draft: TurnDraft, services: PhaseServices, stored: Mapping[str, Any]) -> PreparedTurn:
    """Prepare a turn that was accepted before, from its stored input: phases 9 to 12, as if it had just been accepted.

    What phases 1 to 7 choose is chosen again, and not said again: the stream has it.
    """
    for phase in PHASES[:ACCEPTING]:
        await phase.run(draft, replace(services, emit=_unsaid))
    draft.model = stored["model"]
    draft.input = NewMessage(stored["message_id"], Message.from_json(stored["input"]), draft.turn_id)
    return await prepare(draft, services, PHASES[ACCEPTING + 1 :])


def _unsaid(chunk: StreamChunk) -> None:
    """Let a chunk go: an earlier run of the operation has said it."""


def finished(draft: TurnDraft) -> PreparedTurn:
    """Give the prepared turn: the system's prompt first, then the history, the input last."""
    persona, gmi, new = draft.chosen()
    if draft.memory_policy is not None and not draft.memory_policy.enabled:
        persona = replace(persona, memory=MemoryUse())
    told = draft.prompt.kept("retrieved") if draft.prompt is not None else 0
    recalled = draft.recalled if draft.prompt is not None and draft.prompt.kept("memory") else ()
    return PreparedTurn(
        persona=persona,
        gmi=gmi,
        model=draft.model,
        messages=(system_message(draft), *draft.history),
        runtime_tools=draft.runtime_tools,
        host_tools=draft.host_tools,
        usage=draft.usage,
        room=draft.room,
        session=draft.session,
        failure_mode=draft.plan.failure_mode if draft.plan is not None else None,
        degraded=draft.degraded,
        keeps=draft.keeps,
        prompt=draft.routing["prompt"],
        mind=draft.mind,
        sources=tuple(source.to_json() for source in draft.sources[:told]),
        said=text_of(new.message.content),
        sentiment=draft.routing.get("sentiment", {}).get("score", 0.0),
        recalled=recalled,
        warnings=draft.warnings,
        new_summary=draft.new_summary,
    )
