"""Runs an operation once more after its process has gone: nothing of it was seen outside, and its input is stored."""

from collections.abc import Mapping
from typing import Any, Final

from app.domain.feedback import Feedback
from app.domain.frozen import dataclass
from app.domain.ids import gmi_instance_id
from app.domain.language import Language
from app.domain.messages import Message
from app.domain.pause import PauseState
from app.domain.persona import Persona
from app.domain.tools import ToolSpec
from app.domain.turn import OperationKind, TurnInput, TurnOptions
from app.store import claims, inbound, pauses, streams
from app.store.claims import Reclaimed
from app.store.database import Connection
from app.store.inbound import InboundRecord
from app.store.pauses import PauseRecord
from app.turn.orchestrator.continuation import Continued, go_on, merged_options
from app.turn.orchestrator.execution import Emissions, execute
from app.turn.orchestrator.operation import Identity, Operation
from app.turn.orchestrator.services import Services
from app.turn.orchestrator.turn import gmi_input, phase_services
from app.turn.pauses.snapshot import VERSION, Snapshot
from app.turn.preparation.draft import TurnDraft
from app.turn.preparation.pipeline import prepare_again

MOST_ATTEMPTS: Final = 2


@dataclass(frozen=True, slots=True)
class Rerun:
    """An operation that this process has taken over to run it again, with the pause that it answers, if it does."""

    entry: InboundRecord
    held: Reclaimed
    pause: PauseRecord | None

    @property
    def options(self) -> TurnOptions:
        """The operation's own options, for a continuation those of its turn included."""
        given = TurnOptions.from_json(self.entry.payload.get("options") or {})
        return given if self.pause is None else merged_options(_snapshot(self.pause), given)

    @property
    def sources(self) -> tuple[Mapping[str, Any], ...]:
        """The sources that the turn had when it paused."""
        return () if self.pause is None else _snapshot(self.pause).sources

    def operation(self, services: Services) -> Operation:
        """Make it an operation of this process; readers find its ring from here on."""
        entry, held = self.entry, self.held
        session = self.pause.session_id if self.pause else entry.payload.get("session_id") or held.session_id
        identity = Identity(
            held.caller,
            held.conversation_id,
            session,
            entry.stream_id,
            entry.turn_id,
            entry.idempotency_key,
            entry.request_hash,
        )
        operation = Operation(services, entry.kind, identity)
        persona = (
            Persona.from_json(_snapshot(self.pause).persona)
            if self.pause
            else services.personas.known(entry.payload["persona_id"])
        )
        caller = held.caller
        told = (self.pause.snapshot or {}) if self.pause else entry.payload
        operation.language = Language.from_json(told.get("language"))
        operation.name(gmi_instance_id(caller.organization_id, caller.user_id, session, persona.id), persona)
        return operation

    async def run(self, operation: Operation) -> Emissions:
        """Prepare it from behind T1; what is given runs it, and its last item is the outcome."""
        if self.pause is not None:
            continued = Continued(self.pause, _snapshot(self.pause), results=list(self.pause.results))
            return await go_on(operation, continued, self.options, {})
        turn = _turn(self)
        draft = TurnDraft(turn, operation.conversation, operation.stream_id, operation.turn_id)
        draft.fence = operation.fence
        operation.flags = turn.options.custom_flags
        prepared = await prepare_again(draft, phase_services(operation, "reject"), self.entry.payload)
        return execute(operation, prepared.gmi, gmi_input(operation, turn, prepared))


async def reclaim(connection: Connection, services: Services, entry: InboundRecord) -> Rerun | None:
    """Take the operation to run it again; None, with nothing done, when it can only be ended."""
    if not may_run_again(entry):
        return None
    pause = None
    if entry.kind is not OperationKind.TURN:
        pause = await pauses.find(connection, entry.conversation, entry.pause_id or "", for_update=True)
        if pause is None or pause.state is not PauseState.RECORDED or not _can_continue(pause):
            return None
    held = await claims.reclaim(connection, entry.conversation, entry.operation, services.lease.id)
    if held is None:
        return None
    await inbound.run_again(connection, entry, held.fence)
    await streams.run_again(connection, entry.conversation, entry.stream_id, held.fence)
    return Rerun(entry, held, pause)


def may_run_again(entry: InboundRecord) -> bool:
    """Tell whether nothing of the operation was seen outside, and its stored input is all that it needs."""
    return not entry.touched and entry.attempt < MOST_ATTEMPTS and not entry.payload.get("had_provider_keys")


def _can_continue(pause: PauseRecord) -> bool:
    stored = pause.snapshot or {}
    return stored.get("version") == VERSION and not _snapshot(pause).terms.had_keys


def _snapshot(pause: PauseRecord) -> Snapshot:
    return Snapshot.from_json(pause.snapshot or {})


def _turn(rerun: Rerun) -> TurnInput:
    """Give the turn as it was accepted."""
    stored, held = rerun.entry.payload, rerun.held
    return TurnInput(
        caller=held.caller,
        conversation_id=held.conversation_id,
        session_id=stored["session_id"],
        input=Message.from_json(stored["input"]).content or "",
        persona_id=stored["persona_id"],
        tools=tuple(ToolSpec.from_json(tool) for tool in stored["tools"]),
        options=rerun.options,
        user_context=stored["user_context"],
        user_feedback=Feedback.from_json(stored.get("user_feedback")),
        long_term_memory=stored.get("long_term_memory"),
        session_preferences=stored.get("session_preferences") or {},
        skill_context=stored.get("skill_context"),
        enabled_skills=tuple(stored.get("enabled_skills") or ()),
        disabled_skills=tuple(stored.get("disabled_skills") or ()),
        language_hint=stored.get("language_hint"),
        target_language=stored.get("target_language"),
        language=Language.from_json(stored.get("language")),
        pause_ttl_seconds=stored.get("pause_ttl_seconds"),
        on_expiry=stored.get("on_expiry"),
    )
