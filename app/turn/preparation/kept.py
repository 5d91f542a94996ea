"""What a conversation keeps of how its turns were prepared: read where a phase goes by it, written with the outcome.

An operation without an outcome leaves it as it was, and with persistence off nothing of it is kept.
"""

from collections.abc import Mapping
from typing import Any, Final

from app.domain.jsontext import dumps_text
from app.domain.memory_policy import MemoryPolicy
from app.store import conversations
from app.turn.preparation.draft import PhaseServices, TurnDraft

PROFILE: Final = "prompt_profile"
POLICY: Final = "long_term_memory_policy"
REVIEW: Final = "long_term_memory_review"

LONGEST_QUERY: Final = 8000
"""How many characters of an input are looked at: what fits a turn shows in its beginning."""


async def kept_of(draft: TurnDraft, services: PhaseServices) -> Mapping[str, Any]:
    """Give what the conversation keeps, as it is now that the turn has been accepted."""
    if not services.policy.persistence:
        return {}
    if draft.kept is None:
        async with services.database.statement() as connection:
            draft.kept = await conversations.preparation(connection, draft.conversation)
    return draft.kept


async def memory_policy(draft: TurnDraft, services: PhaseServices) -> MemoryPolicy | None:
    """Give what of long-term memory the turn may use; None where there is no such memory.

    What the turn says is kept for those that follow, and so is what holds where nothing was said before.
    """
    if services.aids.memory is None:
        return None
    if draft.memory_policy is None:
        kept = (await kept_of(draft, services)).get(POLICY)
        draft.kept = None  # A turn that has to wait is prepared before the one in front of it has ended.
        given = draft.turn.long_term_memory
        draft.memory_policy = services.aids.memory_policy.merged(kept).merged(given)
        if given is not None or kept is None:
            draft.keeps[POLICY] = draft.memory_policy.to_json()
    return draft.memory_policy


def query_of(draft: TurnDraft) -> str:
    """Give the turn's words as one text; typed parts as the JSON that they are. What is very long is cut."""
    content = draft.turn.input
    return (content if isinstance(content, str) else dumps_text(content)).strip()[:LONGEST_QUERY]
