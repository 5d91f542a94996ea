"""Phase 7: the organization, and what of long-term memory the turn may use: its own word over what is stored."""

from app.turn.preparation.draft import PhaseServices, TurnDraft
from app.turn.preparation.kept import memory_policy


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Note the organization, and settle the policy where there is a long-term memory."""
    draft.routing["organization_id"] = draft.turn.caller.organization_id or None
    draft.routing["tenant_routing"] = services.policy.tenants.to_json()
    policy = await memory_policy(draft, services)
    draft.routing["long_term_memory_policy"] = policy.to_json() if policy is not None else None
