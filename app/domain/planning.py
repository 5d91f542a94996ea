"""A turn's plan: which capabilities it is offered, and what becomes of it when tools fail (R250)."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, get_args

from app.domain.frozen import dataclass
from app.domain.tools import FailureMode

PLANNER_VERSION: Final = "fermata-turn-planner-1"
SHOWN_CHARACTERS: Final = 160
FULL_CHARACTERS: Final = 1200
NAMES_OF_A_CATEGORY: Final = 4

Selection = Literal["all", "discovered"]
Kind = Literal["tool", "skill", "memory", "extension", "channel", "voice", "productivity", "any"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_FAILURE_FLAGS: Final = ("toolFailureMode", "tool_failure_mode", "failureMode", "failMode")
FULL_FAILURE_FLAGS: Final = _FAILURE_FLAGS[:2]
_SELECTION_FLAGS: Final = ("toolSelectionMode", "tool_selection_mode", "capabilityToolSelectionMode")
_KIND_FLAGS: Final = ("capabilityDiscoveryKind", "capability_kind")
_CATEGORY_FLAGS: Final = ("capabilityCategory", "capability_category")
_DISCOVERY_FLAGS: Final = ("enableCapabilityDiscovery", "capabilityDiscovery")
_FAILURE_WORDS: Final[Mapping[str, FailureMode]] = {
    "fail_open": "fail_open",
    "open": "fail_open",
    "fail_closed": "fail_closed",
    "closed": "fail_closed",
}
_SELECTION_WORDS: Final[Mapping[str, Selection]] = {
    "all": "all",
    "full": "all",
    "discovered": "discovered",
    "selected": "discovered",
    "retrieved": "discovered",
}


@dataclass(frozen=True, slots=True)
class PlanningPolicy:
    """How turns are planned. `retry_seconds` is between two tries at discovery; `always` are tools offered anyway.

    `most` capabilities are found for a turn, of which `most_full` are told in full.
    """

    failure_mode: FailureMode = "fail_open"
    allow_request_overrides: bool = True
    discovery: bool = True
    only_available: bool = True
    kind: Kind = "any"
    include_prompt_context: bool = True
    selection: Selection = "discovered"
    retries: int = 1
    retry_seconds: float = 0.15
    most: int = 5
    most_full: int = 2
    always: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Capability:
    """Something that a turn may use. `text` is all that it is found by, `full` what a prompt tells of it at length."""

    kind: Kind
    name: str
    description: str
    text: str
    category: str = ""
    full: str = ""
    available: bool = True

    @property
    def line(self) -> str:
        """The capability in one line."""
        shown = " ".join(self.description.split())
        cut = shown if len(shown) <= SHOWN_CHARACTERS else shown[:SHOWN_CHARACTERS] + "…"
        return f"{self.name} ({self.kind}): {cut}"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a turn's flags ask of its plan, over the policy. `asked_closed` tells that they name fail_closed in full."""

    failure_mode: FailureMode
    selection: Selection
    kind: Kind
    category: str | None
    discovery: bool
    asked_closed: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A turn's plan. `found` are capabilities, the best first; `selected` are names of tools among them.

    `told` says whether a prompt tells them. With the selection `all` every tool is offered; `fallback_reason` tells
    why, where another one was wanted.
    """

    failure_mode: FailureMode
    selection: Selection
    query: str = ""
    kind: Kind = "any"
    category: str | None = None
    discovery: bool = False
    found: tuple[Capability, ...] = ()
    overview: str = ""
    told: bool = True
    selected: tuple[str, ...] = ()
    fallback_reason: str | None = None
    asked_closed: bool = False
    attempts: int = 0
    milliseconds: float = 0.0
    most_full: int = 2
    always: tuple[str, ...] = field(default=())

    @property
    def entries(self) -> tuple[str, ...]:
        """What a prompt tells: an overview of what there is, and what was found for this turn, the best first."""
        if not self.told or all(one.kind == "memory" for one in self.found):
            return ()
        lines = []
        for place, capability in enumerate(one for one in self.found if one.kind != "memory"):
            full = capability.full if place < self.most_full and capability.kind != "tool" else ""
            lines.append(f"- {capability.line}" + (f"\n{full[:FULL_CHARACTERS]}" if full else ""))
        return tuple([self.overview, *lines] if self.overview else lines)

    @property
    def remembered(self) -> tuple[str, ...]:
        """The memories that were found: they are told as data, and not with what the service offers."""
        return tuple(one.full for one in self.found if one.kind == "memory" and one.full) if self.told else ()

    def offers(self, name: str) -> bool:
        """Tell whether a tool of that name is offered."""
        return self.selection == "all" or name in self.selected or name in self.always

    def policy_json(self) -> dict[str, Any]:
        """Give the plan's policy as clients read it."""
        return {
            "planner_version": PLANNER_VERSION,
            "tool_failure_mode": self.failure_mode,
            "tool_selection_mode": self.selection,
        }

    def to_json(self, adaptive: Mapping[str, Any] | None) -> dict[str, Any]:
        """Give what the routing block tells of the plan."""
        diagnostics = {
            "planning_latency_ms": round(self.milliseconds, 3),
            "discovery_attempted": self.attempts > 0,
            "discovery_applied": bool(self.found),
            "discovery_attempts": self.attempts,
            "used_fallback": self.fallback_reason is not None,
        }
        return {
            "policy": self.policy_json(),
            "diagnostics": diagnostics,
            "adaptive_execution": adaptive,
            "discovery": {
                "enabled": self.discovery,
                "kind": self.kind,
                "category": self.category,
                "found": [f"{capability.kind}:{capability.name}" for capability in self.found],
                "selected_tool_names": list(self.selected),
                "fallback_applied": self.fallback_reason is not None,
                "fallback_reason": self.fallback_reason,
                "token_estimate": -(-sum(map(len, self.entries)) // 4),
            },
        }


def wish(policy: PlanningPolicy, flags: Mapping[str, Any], failure_mode: FailureMode) -> Wish:
    """Read a turn's flags over the policy; flags that say nothing known are let be."""
    if not policy.allow_request_overrides:
        return Wish(failure_mode, policy.selection, policy.kind, None, policy.discovery)
    kind = _word(flags, _KIND_FLAGS)
    category = flags.get(next((name for name in _CATEGORY_FLAGS if name in flags), ""))
    discovery = flags.get(next((name for name in _DISCOVERY_FLAGS if name in flags), ""))
    return Wish(
        failure_mode=_FAILURE_WORDS.get(_word(flags, _FAILURE_FLAGS), failure_mode),
        selection=_SELECTION_WORDS.get(_word(flags, _SELECTION_FLAGS), policy.selection),
        kind=next((known for known in KINDS if known == kind), policy.kind),
        category=category.strip().lower() or None if isinstance(category, str) else None,
        discovery=discovery if isinstance(discovery, bool) else policy.discovery,
        asked_closed=_FAILURE_WORDS.get(_word(flags, FULL_FAILURE_FLAGS)) == "fail_closed",
    )


def overview(capabilities: Sequence[Capability]) -> str:
    """Give how many capabilities there are of each kind and category, the most first, with some of their names."""
    groups: dict[str, list[str]] = {}
    for capability in capabilities:
        groups.setdefault(capability.category or capability.kind, []).append(capability.name)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    return "; ".join(f"{name}: {len(names)} ({_some(names)})" for name, names in ordered)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMES_OF_A_CATEGORY])
    return shown if len(names) <= NAMES_OF_A_CATEGORY else f"{shown}, …"


def _word(flags: Mapping[str, Any], names: Sequence[str]) -> str:
    """Give the first flag that is there as a word: trimmed, in small letters, with underscores."""
    value = flags.get(next((name for name in names if name in flags), ""))
    return value.strip().lower().replace(" ", "_").replace("-", "_") if isinstance(value, str) else ""
