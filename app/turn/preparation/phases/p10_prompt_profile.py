"""Phase 10: the prompt profile that the turn's mode and words ask for, where profiles are set."""

from dataclasses import replace

from app.domain.profiles import ProfileState, select
from app.turn.preparation.draft import PhaseServices, TurnDraft
from app.turn.preparation.kept import PROFILE, kept_of, query_of


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Choose a profile; the choice is kept for some turns. Without profiles the persona's prompt is used as it is."""
    draft.routing["prompt_profile"] = None
    policy = services.aids.profiles
    if policy is None:
        return
    kept = await kept_of(draft, services)
    selected = select(
        policy,
        ProfileState.from_json(kept.get(PROFILE)),
        mode=draft.mode,
        text=query_of(draft),
        compacted=draft.compacted,
        now=services.clock.now().isoformat(timespec="milliseconds"),
    )
    draft.keeps[PROFILE] = selected.state.to_json()
    draft.slots = replace(draft.slots, profile=selected.preset.instructions)
    draft.routing["prompt_profile"] = selected.to_json()
