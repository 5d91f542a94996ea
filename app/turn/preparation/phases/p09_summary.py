"""Phase 9: the rolling summary. A pass that is due is made now, under a deadline; the turn's mode picks the profile.

With the rolling summary off, a summary that the conversation's limit has made is told all the same, and with automatic
summarization on a conversation past its limit makes one (R61 to R72, R326 to R329, R338, R339, R343, R344).
"""

from dataclasses import replace
from typing import Any

from app.conversation.covered import Covered
from app.conversation.history import Summary, arranged
from app.conversation.profiles import profile_of
from app.conversation.summarizer import Summarizer, Task, Tried
from app.domain.memory import MemoryPlace
from app.domain.memory_policy import NewSummary
from app.domain.policy import Compaction, HistoryPolicy
from app.domain.traits import told_traits
from app.store.summaries import SummaryRecord
from app.turn.preparation.draft import PhaseServices, TurnDraft
from app.turn.preparation.reading import entries, start_of


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Choose the summary that is told, make it longer when that is due, and say so in the routing block."""
    policy = draft.history_policy(services.policy)
    profile, compaction = profile_of(policy.summary, draft.mode)
    if not services.policy.persistence:
        draft.routing["rolling_summary"] = _report(profile, compaction, Tried(None, "persistence_off"))
        return
    record = (await start_of(draft, services)).summary
    tried = Tried(record, "disabled")
    enough = None
    if compaction.enabled:
        tried = await _attempt(draft, services, record, compaction, profile=profile)
    elif policy.summarize_at_limit and policy.limit > 0:
        enough = await _over_the_limit(draft, services, record, compaction)
        tried = Tried(record, "within_limit")
        if enough is not None:
            tried = await _attempt(draft, services, record, _for_limit(compaction, policy), enough=enough)
    draft.summary = _told(tried.record, compaction, policy)
    draft.usage += tried.usage
    draft.compacted = tried.reason is None
    draft.new_summary = _new_summary(draft, tried.record, profile)
    draft.routing["rolling_summary"] = _report(profile, compaction, tried) | {"at_limit": enough is not None}


async def _attempt(
    draft: TurnDraft,
    services: PhaseServices,
    record: SummaryRecord | None,
    compaction: Compaction,
    *,
    profile: str | None = None,
    enough: int | None = None,
) -> Tried:
    policy = services.policy
    task = Task(
        conversation=draft.conversation,
        fence=draft.fence,
        compaction=compaction,
        patience=compaction.least if enough is None else policy.history.chunk,
        profile=profile,
        default_model=policy.utility_model or policy.default_model,
        deadline=policy.history.summary.deadline,
        max_input_tokens=policy.history.summary.max_input_tokens,
        enough=enough,
        keys=draft.turn.provider_api_keys,
    )
    summarizer = Summarizer(
        services.database, services.gateway, services.clock, before_call=services.before_call, on_call=services.on_call
    )
    return await summarizer.attempt(task, record, services.counters.of(task.model))


async def _over_the_limit(
    draft: TurnDraft, services: PhaseServices, record: SummaryRecord | None, compaction: Compaction
) -> int | None:
    """Give how many messages a summary is to take; None while the conversation is within its limit."""
    policy = draft.history_policy(services.policy)
    summary = _told(record, compaction, policy)
    found = await entries(draft, services, summary, policy)
    over = len(arranged(found, summary, replace(policy, limit=0))) - policy.limit
    # One message more than there are too many, since a first summary is a message too.
    return min(max(policy.chunk, over + 1), max(policy.chunk, compaction.most)) if over > 0 else None


def _for_limit(compaction: Compaction, policy: HistoryPolicy) -> Compaction:
    most = max(policy.chunk, compaction.most)
    return replace(compaction, head=policy.head, tail=policy.tail, least=2, most=most)


def _told(record: SummaryRecord | None, compaction: Compaction, policy: HistoryPolicy) -> Summary | None:
    """Give the summary that is told: none without a text, and one that a profile made only where one is on."""
    if record is None or not record.text or not record.covers:
        return None
    if not compaction.enabled and not record.at_limit:
        return None
    return Summary(
        text=record.text,
        memory=record.memory,
        covered=Covered(record.covers),
        head=record.head,
        head_now=compaction.head if compaction.enabled else policy.head,
        at_limit=not compaction.enabled,
    )


def _new_summary(draft: TurnDraft, record: SummaryRecord | None, profile: str | None) -> NewSummary | None:
    """Give what long-term memory may keep of the summary, if the turn has made one and its policy has a scope on."""
    policy = draft.memory_policy
    if not draft.compacted or record is None or policy is None or not policy.enabled or not policy.readable:
        return None
    return NewSummary(
        place=MemoryPlace(draft.turn.caller, draft.turn.conversation_id, draft.chosen()[0].id),
        session_id=draft.turn.session_id,
        mode=draft.mode,
        profile_id=profile,
        policy=policy,
        text=record.text,
        memory=record.memory,
        upto=max((last for _, last in record.covers), default=0),
        made_at=record.made_at,
        traits=told_traits(draft.chosen()[0], draft.session.traits),
    )


def _report(profile: str | None, compaction: Compaction, tried: Tried) -> dict[str, Any]:
    record = tried.record
    return {
        "enabled": compaction.enabled,
        "profile_id": profile,
        "did_compact": tried.reason is None,
        "reason": tried.reason,
        "summarized_messages": tried.taken,
        "covered_messages": record.message_count if record else 0,
        "version": record.version if record else 0,
        "head": record.head if record else None,
        "failures": record.failures if record else 0,
        "usage": tried.usage.to_json() if tried.usage.total_tokens else None,
    }
