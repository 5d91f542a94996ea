"""Phase 11: what is remembered beyond the conversation, looked for every few turns, where there is such a memory."""

from dataclasses import asdict, replace
from typing import Any

from app.domain.memory import MemoryPlace, Recall
from app.domain.memory_policy import Review, recall_policy, review_due
from app.memory.formulas import MOODS
from app.store import messages
from app.turn.preparation.draft import PhaseServices, TurnDraft
from app.turn.preparation.kept import REVIEW, kept_of, query_of

NOT_APPLICABLE = {"should_review": False, "review_reason": "retriever_not_applicable", "did_retrieve": False}


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Recall when that is due, and note why or why not. That something was looked for counts, found or not."""
    memory, policy, base = services.aids.memory, draft.memory_policy, services.aids.recall
    draft.routing["long_term_memory_recall"] = asdict(base) if memory is not None else None
    draft.routing["long_term_memory_retrieval"] = None if memory is None else dict(NOT_APPLICABLE)
    if memory is None or policy is None or not policy.enabled or not policy.beyond:
        return
    async with services.database.statement() as connection:
        turn = await messages.count_of_user(connection, draft.conversation)
    last = Review.from_json((await kept_of(draft, services)).get(REVIEW))
    due, reason = review_due(base, last, turn, compacted=draft.compacted)
    query = query_of(draft)
    if due and not query:
        due, reason = False, "empty_query"
    report: dict[str, Any] = {"should_review": due, "review_reason": reason, "did_retrieve": False}
    draft.routing["long_term_memory_retrieval"] = report
    if not due:
        return
    draft.keeps[REVIEW] = Review(turn, services.clock.now().isoformat(timespec="milliseconds")).to_json()
    own = recall_policy(base.profile, {**asdict(base), **(policy.retrieval or {})})
    place = MemoryPlace(draft.turn.caller, draft.turn.conversation_id, draft.chosen()[0].id)
    wanted = Recall(
        place=place,
        query=query,
        scopes=policy.beyond,
        categories=policy.allowed_categories,
        top_k=own.top_k,
        max_characters=own.max_characters,
        mood=MOODS.get(draft.session.mood, (0.0, 0.0))[0],
    )
    try:
        found = await memory.recall(wanted)
    except Exception as error:  # noqa: BLE001 - a turn without its memories is better than none
        report |= {"review_reason": "retrieval_error", "error": type(error).__name__}
        draft.warnings = (*draft.warnings, f"Long-term memory could not be asked: {type(error).__name__}.")
        return
    text = found.text.strip()[: own.max_characters]
    if text:
        draft.slots = replace(draft.slots, memory=(text,))
        draft.recalled = (found,) if found.feedback is not None else ()
        report |= {"did_retrieve": True, "context_chars": len(text), "diagnostics": dict(found.diagnostics)}
