"""What a continuation goes on from: the pause's snapshot, or what can be told without it (R186, R187)."""

import structlog

from app.conversation.history import arranged, read
from app.conversation.tokens import Estimate
from app.conversation.valid import valid
from app.domain.errors import InvalidStateError
from app.domain.messages import Message
from app.domain.session import SessionKey
from app.domain.tools import ToolSpec
from app.domain.turn import Caller, PauseTerms, TurnOptions
from app.domain.usage import Usage
from app.prompts.engine import Space, build
from app.prompts.slots import PromptInput
from app.store import sessions
from app.store.pauses import PauseRecord
from app.turn.orchestrator.services import Services
from app.turn.pauses.snapshot import Snapshot


async def snapshot_of(services: Services, pause: PauseRecord) -> Snapshot:
    """Give the pause's snapshot, or one that is made of the stored conversation, without sources.

    Raises UnavailableError for a snapshot of a newer release, PersonaNotFoundError when there is none and the persona
    is gone too, and InvalidStateError when the conversation keeps no messages. The pause stays as it is.
    """
    if pause.snapshot is not None:
        return Snapshot.from_json(pause.snapshot)
    if not services.policy.persistence:
        message = "What the paused turn had said is no longer kept, so it can't go on; a new turn ends the pause."
        raise InvalidStateError(message, pause_id=pause.pause_id)
    persona = services.personas.find(pause.persona_id)
    key = SessionKey.of(Caller(pause.user_id, pause.organization_id), pause.session_id)
    async with services.database.transaction() as connection:
        entries = await read(connection, pause.conversation, None, services.policy.history)
        session = await sessions.find(connection, key)
    told = valid(arranged(entries, None, services.policy.history)).messages
    prompt = build(PromptInput(persona, session), Space(Estimate().text, services.policy.history.default_window))
    structlog.get_logger(__name__).warning("pause.without_snapshot", pause_id=pause.pause_id)
    names = dict.fromkeys(call.name for call in pause.calls if not call.needs_approval)
    return Snapshot(
        messages=(Message("system", prompt.system), *told),
        persona=persona.to_json(),
        # Strict servers want a tool for each call that they read of; more than the names is not known.
        host_tools=tuple(ToolSpec(name, "") for name in names),
        options=TurnOptions(),
        usage=Usage(),
        terms=PauseTerms(pause.ttl_seconds, pause.on_expiry),
    )
