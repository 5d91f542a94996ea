"""The twelve phases in their order (R246). What fails before phase 8 stores nothing and leaves a held pause alone."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from app.domain.chunks import StreamChunk
from app.domain.errors import DatabaseError
from app.domain.messages import Message
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

Phase = Callable[[TurnDraft, PhaseServices], Awaitable[None]]

PHASES: Final[tuple[Phase, ...]] = (
    p01_validate.run,
    p02_acquire_gmi.run,
    p03_stream_context.run,
    p04_gmi_input.run,
    p05_plan.run,
    p06_execution_policy.run,
    p07_memory_policy.run,
    p08_persist_inbound.run,
    p09_summary.run,
    p10_prompt_profile.run,
    p11_recall.run,
    p12_history.run,
)


ACCEPTING: Final = PHASES.index(p08_persist_inbound.run)
RETRY_SECONDS: Final = 0.25


async def prepare(draft: TurnDraft, services: PhaseServices, phases: tuple[Phase, ...] = PHASES) -> PreparedTurn:
    """Run the phases one after another. Raises what a phase raises; an `AppError` carries its own code.

    Once a turn is accepted it goes on: a phase behind that waits for a database that is away.
    """
    for phase in phases:
        if phase in PHASES[ACCEPTING + 1 :]:
            await _patiently(phase, draft, services)
        else:
            await phase(draft, services)
    return finished(draft)


async def _patiently(phase: Phase, draft: TurnDraft, services: PhaseServices) -> None:
    while True:
        try:
            return await phase(draft, services)
        except DatabaseError:
            await asyncio.sleep(RETRY_SECONDS)


async def prepare_again(draft: TurnDraft, services: PhaseServices, stored: Mapping[str, Any]) -> PreparedTurn:
    """Prepare a turn that was accepted before, from its stored input: phases 9 to 12, as if it had just been accepted.

    What phases 1 to 7 choose is chosen again, and not said again: the stream has it.
    """
    for phase in PHASES[:ACCEPTING]:
        await phase(draft, replace(services, emit=_unsaid))
    draft.model = stored["model"]
    draft.input = NewMessage(stored["message_id"], Message.from_json(stored["input"]), draft.turn_id)
    return await prepare(draft, services, PHASES[ACCEPTING + 1 :])


def _unsaid(chunk: StreamChunk) -> None:
    """Let a chunk go: an earlier run of the operation has said it."""


def finished(draft: TurnDraft) -> PreparedTurn:
    """Give the prepared turn: the system's prompt first, then the history, the input last."""
    persona, gmi, _ = draft.chosen()
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
    )
