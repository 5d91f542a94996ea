"""Phase 5: the turn's plan, where turns are planned; else every tool of persona and host is offered (R250)."""

from collections.abc import Iterator

from app.domain.jsontext import dumps_text
from app.domain.planning import Capability, wish
from app.domain.tools import ToolGate
from app.turn.preparation.draft import PhaseServices, TurnDraft
from app.turn.preparation.planner import Asked, tool_text


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Plan. Raises PlanningError; nothing is stored then."""
    planner = services.aids.planner
    if planner is None:
        return
    if planner.asks_outside:
        await draft.judged()
    turn, persona = draft.turn, draft.chosen()[0]
    modes = (turn.options.tool_failure_mode, planner.policy.failure_mode, persona.tool_failure_mode)
    failure_mode = modes[0] or ("fail_closed" if "fail_closed" in modes else "fail_open")
    query = turn.input if isinstance(turn.input, str) else dumps_text(turn.input)
    asked = Asked(
        query=query.strip(),
        wish=wish(planner.policy, turn.options.custom_flags, failure_mode),
        capabilities=[*_tools(draft), *_skills(draft, services)],
    )
    draft.plan = await planner.plan(asked)


def _tools(draft: TurnDraft) -> Iterator[Capability]:
    gate = ToolGate.from_json(draft.turn.options.tool_gate)
    for tool in (*draft.runtime_tools, *draft.turn.tools):
        text = tool_text(tool.name, tool.description, tool.input_schema)
        yield Capability("tool", tool.name, tool.description, text, available=gate.lets_pass(tool.name))


def _skills(draft: TurnDraft, services: PhaseServices) -> Iterator[Capability]:
    """Give the skills that the session has not switched off, and that its prompt does not tell of anyhow."""
    for skill in services.aids.skills.all():
        if skill.id not in draft.turn.disabled_skills and skill.id not in draft.turn.enabled_skills:
            text = f"{skill.id} {skill.description} {skill.category}"
            yield Capability(
                "skill", skill.id, skill.description, text, skill.category, full=skill.instructions.strip()
            )
