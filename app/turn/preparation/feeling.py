"""What an input tells of its user, for personas that ask for it (R255), and the count of a session's turns.

No failure here is one of the turn: it goes on without having noticed anything.
"""

from typing import Any, Final

import structlog

from app.domain.messages import text_of
from app.domain.persona import Persona
from app.store import sessions
from app.turn.gmi.sentiment import felt
from app.turn.preparation.draft import PhaseServices, TurnDraft

_LOOKED_BACK: Final = 10
_PENDING: Final = 20


def wants(persona: Persona) -> bool:
    """Tell whether a persona has use for any of this."""
    return persona.sentiment_tracking.enabled or bool(persona.meta_prompts)


async def notice(draft: TurnDraft, services: PhaseServices) -> None:
    """Count the turn, score its input, and leave in the draft what was noticed."""
    mind = draft.session.mind
    draft.mind = {"turns": mind.get("turns", 0) + 1}
    tracking = draft.chosen()[0].sentiment_tracking
    if not tracking.enabled:
        return
    try:
        await _score(draft, services)
    except Exception as error:  # noqa: BLE001 - see above
        structlog.get_logger(__name__).warning("sentiment.failed", turn_id=draft.turn_id, error=repr(error))


async def _score(draft: TurnDraft, services: PhaseServices) -> None:
    persona, _, new = draft.chosen()
    text = text_of(new.message.content)
    if not text.strip():
        return
    mind = draft.session.mind
    found = felt(
        mind.get("sentiment") or {},
        text,
        await services.aids.sentiment.score(text),
        persona.sentiment_tracking,
        errors=await _errors(draft, services),
    )
    events: list[dict[str, Any]] = [
        {"event": event.name, "severity": event.severity, "turn": draft.mind["turns"]} for event in found.events
    ]
    draft.mind |= {"sentiment": dict(found.kept), "events": [*mind.get("events", ()), *events][-_PENDING:]}
    draft.signals = frozenset(event.name for event in found.events)
    draft.routing["sentiment"] = found.to_json()


async def _errors(draft: TurnDraft, services: PhaseServices) -> int:
    """Count the failures among the last things that the session's trace tells."""
    if not services.policy.persistence:
        return 0
    last = await services.database.read(
        lambda connection: sessions.trace_page(
            connection, draft.session_key, after=None, limit=_LOOKED_BACK, descending=True
        )
    )
    return sum(record.entry.type == "error" for record in last)
