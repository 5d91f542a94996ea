"""Runs a persona's metaprompts behind a turn that was answered (R263): in the background, and never to its harm.

Their results are stored only over what they were made from: a session that was erased meanwhile stays erased.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import structlog

from app.domain.frozen import dataclass
from app.domain.generators import aclosing
from app.domain.messages import Message, text_of
from app.domain.persona import MetaPrompt, Persona
from app.domain.session import SessionKey, SessionState, TraceEntry, bounded, merged
from app.domain.turn import StreamStatus
from app.providers.attempts import AttemptRecord
from app.providers.base import ModelRequest, TextPiece
from app.providers.billing import billed
from app.providers.gateway import Route
from app.store import claims, messages, sessions
from app.store.database import Connection
from app.store.sessions import TraceOrigin
from app.turn.gmi.base import GmiTurnInput
from app.turn.gmi.metaprompts import Change, Evidence, changed_mind, due, read_answer, request_of
from app.turn.orchestrator.operation import Operation

RUN_SECONDS: Final = 120.0
TRIES: Final = 3
FLAG: Final = "metaprompts"
"""The custom flag by which a turn asks for metaprompts whose trigger is `manual`: a list of their ids."""

_MESSAGES, _ENTRIES = 10, 20
_FEW_MESSAGES, _FEW_ENTRIES = 5, 10
_CHARACTERS: Final = 4000
_log = structlog.get_logger(__name__)


def reflect_behind(operation: Operation, turn: GmiTurnInput, status: StreamStatus) -> None:
    """Begin what is due for a turn that has ended; one that failed, was blocked or waits is not reflected upon."""
    if status is StreamStatus.COMPLETED:
        key = SessionKey.of(operation.caller, operation.session_id)
        operation.services.background.start(key, _reflect(operation, turn, key), "metaprompts")


@dataclass(frozen=True, slots=True)
class _Look:
    """What a batch goes by: the session as it was, what was said last, and what was done last."""

    state: SessionState
    said: Sequence[str]
    trace: Sequence[str]


async def _reflect(operation: Operation, turn: GmiTurnInput, key: SessionKey) -> None:
    database = operation.services.database
    state = await database.read(lambda connection: sessions.find(connection, key))
    asked = turn.options.custom_flags.get(FLAG)
    batch = due(turn.persona, state, asked if isinstance(asked, list) else ())
    if not batch:
        return
    said = await database.read(lambda connection: messages.newest(connection, operation.conversation, limit=_MESSAGES))
    done = await database.read(
        lambda connection: sessions.trace_page(connection, key, after=None, limit=_ENTRIES, descending=True)
    )
    look = _Look(
        state,
        [f"{one.role}: {text_of(one.content)}" for _, one in said if one.role in {"user", "assistant"}],
        [f"{record.entry.type}: {record.entry.message}" for record in reversed(done)],
    )
    answers = await asyncio.gather(*(_answer(operation, turn, one, look) for one in batch))
    made = [change for change in answers if change is not None]
    for _ in range(TRIES):
        async with database.transaction() as connection:
            if await _keep(connection, operation, turn.persona, _Batch(key, batch, made, state.mind.get("turns", 0))):
                return
    _log.warning("metaprompts.not_kept", stream_id=operation.stream_id)


async def _answer(operation: Operation, turn: GmiTurnInput, one: MetaPrompt, look: _Look) -> Change | None:
    """Ask one; None when it could not be asked, or what came is no answer."""
    by_event = one.trigger == "event_based"
    evidence = Evidence(
        _last(look.said, _FEW_MESSAGES if by_event else _MESSAGES),
        _last(look.trace, _FEW_ENTRIES if by_event else _ENTRIES),
        one.event_name or "",
    )
    try:
        async with asyncio.timeout(RUN_SECONDS):
            await operation.services.lease.until_fresh()
            text = await _ask(operation, turn, one, request_of(one, turn.persona, look.state, evidence))
        return read_answer(text, turn.persona)
    except Exception as error:  # noqa: BLE001 - whatever it was, nobody waits for it
        _log.warning("metaprompt.failed", metaprompt=one.id, stream_id=operation.stream_id, error=repr(error)[:300])
        return None


async def _ask(operation: Operation, turn: GmiTurnInput, one: MetaPrompt, told: tuple[Message, ...]) -> str:
    services = operation.services

    def heard(record: AttemptRecord) -> None:
        operation.calls.append(billed(record, services.gateway.registry, purpose="metaprompt"))

    model = one.model or services.policy.utility_model or services.policy.default_model
    request = ModelRequest(
        model=model,
        messages=told,
        temperature=one.temperature,
        max_tokens=one.max_output_tokens,
        response_format={"type": "json_object"},
    )
    route = Route(model, api_keys=turn.provider_api_keys)
    async with aclosing(services.gateway.stream(route, request, heard)) as events:
        return "".join([event.text async for event in events if isinstance(event, TextPiece)])


@dataclass(frozen=True, slots=True)
class _Batch:
    """What was run for a session, at which of its turns, and what the answers change."""

    key: SessionKey
    ran: Sequence[MetaPrompt]
    made: Sequence[Change]
    turns: int


async def _keep(connection: Connection, operation: Operation, persona: Persona, batch: _Batch) -> bool:
    """Store what a batch has changed; False when another was faster. What is gone meanwhile is left alone."""
    if await claims.lock(connection, operation.conversation) is None:
        return True
    await operation.keep_calls(connection)
    now = await sessions.find(connection, batch.key)
    if not now.version:
        return True
    if not await sessions.write(connection, batch.key, _changes(now, batch), seen=now.version):
        return False
    services = operation.services
    names = sorted({name for change in batch.made for name in change.names})
    about = {"metaprompts": [one.id for one in batch.ran], "answered": len(batch.made), "changed": names}
    text = f"Metaprompts were run; they changed {', '.join(names) or 'nothing'}."
    await sessions.keep(
        connection,
        batch.key,
        TraceOrigin(
            operation.conversation, operation.conversation_id, operation.stream_id, operation.turn_id, persona.id
        ),
        [TraceEntry(services.clock.now(), "metaprompts_run", text, None, about)],
        most=persona.reasoning_trace.max_entries or services.policy.trace_entries,
    )
    return True


def _changes(now: SessionState, batch: _Batch) -> dict[str, Any]:
    changes: dict[str, Any] = {"mind": changed_mind(now.mind, batch.made, batch.ran, batch.turns)}
    user, task = dict(now.user_context), dict(now.task_context)
    for change in batch.made:
        user, task = merged(user, change.user_context), {**task, **change.task_context}
        if change.mood is not None:
            changes["mood"] = change.mood
    return {**changes, "user_context": user, "task_context": bounded(task, "task context")}


def _last(lines: Sequence[str], most: int) -> list[str]:
    """Give the last lines, cut so that all together are not too long."""
    return [line[: _CHARACTERS // most] for line in lines[-most:]]
