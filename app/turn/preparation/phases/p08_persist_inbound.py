"""Phase 8: the turn is accepted. In one transaction (T1) a held pause ends and the input is stored (R106, R252)."""

from typing import Any

from app.domain.errors import PauseHeldError
from app.domain.pause import PauseEvent
from app.store import messages, pauses, sessions
from app.store.database import Connection
from app.store.messages import NewMessage
from app.store.pauses import PauseRecord
from app.turn.pauses import keeper
from app.turn.preparation.draft import PhaseServices, TurnDraft
from app.turn.preparation.room import check_input


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Accept it. Raises (and stores nothing) NotFoundError, ConversationBusyError, PauseHeldError or TooLargeError."""
    await draft.judged()
    check_input(draft, services)

    closed: set[str] = set()
    tells_context = services.policy.persistence and bool(draft.turn.user_context)

    async def store(connection: Connection, fence: int, free: bool) -> None:  # noqa: FBT001 - T1's answer
        draft.fence = fence
        closed.update(() if free else await _end_held(connection, draft, services))
        if tells_context:
            await sessions.merge_user_context(connection, draft.session_key, draft.turn.user_context)

    draft.fence = await services.accept(store, draft.chosen()[2], inbound_payload(draft), alone=not tells_context)
    for stream_id in closed:
        services.wake(stream_id)
        services.metrics.pause_ended(PauseEvent.NEW_TURN.value)


async def _end_held(connection: Connection, draft: TurnDraft, services: PhaseServices) -> list[str]:
    """End the pause that the conversation holds, store its answers and the input, and give its stream."""
    pause = await pauses.held(connection, draft.conversation, for_update=True)
    if pause is None:
        message = "the held pause that T1 has seen is gone"
        raise RuntimeError(message)
    ended = await _end_pause(connection, draft.fence, pause, draft, services)
    if services.policy.persistence:
        await messages.append(connection, draft.conversation, [*ended, draft.chosen()[2]])
    return [pause.stream_id]


async def _end_pause(
    connection: Connection, fence: int, pause: PauseRecord, draft: TurnDraft, services: PhaseServices
) -> list[NewMessage]:
    if draft.turn.on_pause == "reject":
        message = "The conversation waits for tool results; answer the pending request, or send on_pause: end."
        raise PauseHeldError(message, pending_request=pause.public().to_json())
    return await keeper.end(
        connection,
        pause,
        event=PauseEvent.NEW_TURN,
        fence=fence,
        now=services.clock.now(),
        continued_on=draft.stream_id,
    )


def inbound_payload(draft: TurnDraft) -> dict[str, Any]:
    """Give the turn as it was accepted, without the raw body and without provider keys."""
    turn = draft.turn
    persona, _, new = draft.chosen()
    return {
        "persona_id": persona.id,
        "model": draft.model,
        "session_id": turn.session_id,
        "input": new.message.to_json(),
        "message_id": new.message_id,
        "tools": [tool.to_json() for tool in turn.tools],
        "options": turn.options.to_json(),
        "user_context": dict(turn.user_context),
        "user_feedback": turn.user_feedback.to_json() if turn.user_feedback is not None else None,
        "long_term_memory": turn.long_term_memory,
        "session_preferences": dict(turn.session_preferences),
        "skill_context": turn.skill_context,
        "enabled_skills": list(turn.enabled_skills),
        "disabled_skills": list(turn.disabled_skills),
        "language_hint": turn.language_hint,
        "target_language": turn.target_language,
        "language": turn.language.to_json() if turn.language is not None else None,
        "pause_ttl_seconds": turn.pause_ttl_seconds,
        "on_expiry": turn.on_expiry,
        "had_provider_keys": bool(turn.provider_api_keys),
    }
