"""Phase 6: how the turn is executed. Where turns of its kind did badly of late, its plan is made more careful."""

from dataclasses import asdict, replace
from typing import Any

from app.domain.outcomes import adapted, scope_key
from app.domain.planning import Plan
from app.turn.delivery import emitter
from app.turn.preparation.draft import PhaseServices, TurnDraft


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Settle which tools are offered, and say that the turn is planned, and whether it is degraded."""
    outcomes, plan = services.aids.outcomes, draft.plan
    adaptive: dict[str, Any] | None = None
    if plan is not None and outcomes is not None and outcomes.adaptive.enabled:
        key = scope_key(outcomes.policy.scope, draft.turn.caller.organization_id, draft.turn.persona_id)
        plan, adaptive = adapted(plan, await outcomes.kpi_of(key), outcomes.adaptive)
    draft.routing["turn_planning"] = plan.to_json(adaptive) if plan is not None else None
    draft.routing["adaptive_execution"] = asdict(outcomes.adaptive) if outcomes is not None else None
    draft.routing["task_outcome_telemetry"] = asdict(outcomes.policy) if outcomes is not None else None
    details: dict[str, Any] = {"planner_version": "none"}
    if plan is not None:
        draft.plan = plan
        _apply(draft, plan)
        details = {**plan.policy_json(), "adaptive_execution": adaptive}
    services.emit(emitter.lifecycle("planned", "ok", services.clock.now(), details))
    if plan is not None and plan.fallback_reason is not None:
        draft.degraded = True
        why = {"reason": plan.fallback_reason, "discovery_attempts": plan.attempts, "adaptive_execution": adaptive}
        services.emit(emitter.lifecycle("degraded", "degraded", services.clock.now(), why))


def _apply(draft: TurnDraft, plan: Plan) -> None:
    draft.runtime_tools = tuple(tool for tool in draft.runtime_tools if plan.offers(tool.name))
    draft.slots = replace(draft.slots, capabilities=plan.entries, memory=plan.remembered)
    draft.host_tools = tuple(tool for tool in draft.turn.tools if plan.offers(tool.name))
