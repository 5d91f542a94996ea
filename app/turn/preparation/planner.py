"""Plans a turn: finds the tools, skills and memories that fit its input, and decides which tools are offered (R250)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, Final

import structlog

from app.domain.errors import AppError, PlanningError
from app.domain.frozen import dataclass
from app.domain.planning import Capability, Plan, PlanningPolicy, Selection, Wish, overview
from app.turn.preparation.ranking import by_meaning, by_words, fused

Vectors = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""Embeds texts; may raise AppError."""

Further = Callable[[], Awaitable[Sequence[Capability]]]
"""Gives capabilities that are looked up, such as memories, the best first; may raise AppError."""

_KEPT: Final = 2000
"""How many vectors of descriptions a process keeps."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a plan is made of: the turn's words, what its flags wish, and what there is."""

    query: str
    wish: Wish
    capabilities: Sequence[Capability]
    further: Further | None = None


class Planner:
    """Makes plans. Ranking by words takes no call; with `vectors` what is alike in meaning is found as well."""

    def __init__(self, policy: PlanningPolicy, vectors: Vectors | None = None) -> None:
        """Keep the policy, and what embeds."""
        self.policy = policy
        self._vectors = vectors
        self._known: dict[str, Sequence[float]] = {}
        self._log = structlog.get_logger(__name__)

    @property
    def asks_outside(self) -> bool:
        """Tell whether a plan shows the turn's words to a model."""
        return self._vectors is not None

    async def plan(self, asked: Asked) -> Plan:
        """Give the plan. PlanningError when every try at discovery failed and the turn is to fail closed."""
        began = perf_counter()
        wanted, policy = asked.wish, self.policy
        plan = Plan(
            failure_mode=wanted.failure_mode,
            selection=wanted.selection,
            query=asked.query,
            kind=wanted.kind,
            category=wanted.category,
            discovery=wanted.discovery,
            asked_closed=wanted.asked_closed,
            most_full=policy.most_full,
            always=policy.always,
        )
        if wanted.discovery and asked.query:
            plan = await self._discovered(plan, asked)
        elif wanted.selection == "discovered":
            plan = replace(plan, selection="all", fallback_reason="discovery_not_run" if wanted.discovery else None)
        return replace(plan, milliseconds=(perf_counter() - began) * 1000)

    async def _discovered(self, plan: Plan, asked: Asked) -> Plan:
        fitting = [one for one in asked.capabilities if self._fits(one, asked.wish)]
        found, attempts = await self._tried(asked, fitting)
        if found is None:
            if plan.failure_mode == "fail_closed":
                message = "The turn could not be planned: looking for its capabilities failed. Send it again."
                raise PlanningError(message, attempts=attempts)
            return replace(plan, selection="all", attempts=attempts, fallback_reason="discovery_failed")
        names = tuple(dict.fromkeys(one.name for one in found if one.kind == "tool"))
        selection: Selection = plan.selection
        reason = None
        if selection == "discovered" and not names:
            selection, reason = "all", "no_tool_matches"
        return replace(
            plan,
            selection=selection,
            found=tuple(found),
            overview=overview(fitting),
            told=self.policy.include_prompt_context,
            selected=names,
            fallback_reason=reason,
            attempts=attempts,
        )

    async def _tried(self, asked: Asked, fitting: Sequence[Capability]) -> tuple[list[Capability] | None, int]:
        for attempt in range(1, self.policy.retries + 2):
            if attempt > 1:
                await asyncio.sleep(self.policy.retry_seconds)
            try:
                return await self._found(asked, fitting), attempt
            except AppError as error:
                self._log.warning("planning.discovery_failed", attempt=attempt, error=error.code)
        return None, self.policy.retries + 1

    async def _found(self, asked: Asked, fitting: Sequence[Capability]) -> list[Capability]:
        texts = [one.text for one in fitting]
        ranking = by_words(asked.query, texts)
        if self._vectors is not None and texts:
            query, *vectors = await self._embedded([asked.query, *texts])
            ranking = fused(ranking, by_meaning(query, vectors))
        found = [fitting[place] for place in ranking]
        if asked.further is not None and asked.wish.kind in {"memory", "any"} and asked.wish.category is None:
            found = [*found[: self.policy.most - 1], *await asked.further()]
        return found[: self.policy.most]

    async def _embedded(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """Embed the query and, once for each description, what there is to find."""
        query, *described = texts
        if len(self._known) > _KEPT:
            self._known.clear()
        new = [query, *(text for text in dict.fromkeys(described) if text not in self._known)]
        vectors = await self._vectors(new) if self._vectors is not None else []
        self._known.update(zip(new[1:], vectors[1:], strict=True))
        return [vectors[0], *(self._known[text] for text in described)]

    def _fits(self, one: Capability, wanted: Wish) -> bool:
        if wanted.kind not in {"any", one.kind} or (self.policy.only_available and not one.available):
            return False
        return wanted.category is None or one.category.lower() == wanted.category


def tool_text(name: str, description: str, schema: Any) -> str:
    """Give what a tool is found by: its name, its description, and what its arguments are called and for."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    told = [name, description]
    for argument, about in properties.items() if isinstance(properties, dict) else ():
        told += [str(argument), str(about.get("description") or "") if isinstance(about, dict) else ""]
    return " ".join(told)
