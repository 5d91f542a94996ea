"""Phase 5: the turn's plan, where turns are planned; else every tool of persona and host is offered (R250)."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from app.domain.memory import MemoryPlace, Recall
from app.domain.memory_policy import MemoryPolicy
from app.domain.planning import Capability, wish
from app.domain.tools import ToolGate
from app.turn.preparation.draft import PhaseServices, TurnDraft
from app.turn.preparation.kept import memory_policy, query_of
from app.turn.preparation.planner import Asked, tool_text

MOST_MEMORIES: Final = 3


async def run(draft: TurnDraft, services: PhaseServices) -> None:
    """Plan. Raises PlanningError; nothing is stored then."""
    planner = services.aids.planner
    if planner is None:
        return
    policy = await memory_policy(draft, services)
    further = partial(_memories, draft, services, policy) if policy is not None and policy.enabled else None
    if planner.asks_outside or further is not None:
        await draft.judged()
    turn, persona = draft.turn, draft.chosen()[0]
    modes = (turn.options.tool_failure_mode, planner.policy.failure_mode, persona.tool_failure_mode)
    failure_mode = modes[0] or ("fail_closed" if "fail_closed" in modes else "fail_open")
    asked = Asked(
        query=query_of(draft),
        wish=wish(planner.policy, turn.options.custom_flags, failure_mode),
        capabilities=[*_tools(draft), *_skills(draft, services)],
        further=further,
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


async def _memories(draft: TurnDraft, services: PhaseServices, policy: MemoryPolicy) -> list[Capability]:
    """Give the memories that fit best, of the scopes that the conversation may use."""
    memory = services.aids.memory
    query = query_of(draft)
    if memory is None or not policy.readable or not query:
        return []
    place = MemoryPlace(draft.turn.caller, draft.turn.conversation_id, draft.chosen()[0].id)
    wanted = Recall(place, query, policy.readable, policy.allowed_categories, top_k=MOST_MEMORIES)
    found = await memory.recall(wanted)
    return [
        Capability("memory", one.trace_id, one.content, one.content, one.category or "", full=one.content)
        for one in found.memories[:MOST_MEMORIES]
    ]
