"""Prompt profiles: which way of answering a turn's mode and words ask for (phase 10)."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from app.domain.frozen import dataclass

_LONG: Final = 420
_SHORT: Final = 180


@dataclass(frozen=True, slots=True)
class Preset:
    """A way of answering. `instructions` is what the prompt is given; a preset may give none."""

    id: str
    label: str = ""
    instructions: str = ""
    addon_prompt_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileRule:
    """When a preset is chosen: all conditions that it has must hold. Without `modes` it holds in each of them."""

    id: str
    priority: int
    preset_id: str
    modes: tuple[str, ...] = ()
    least_characters: int | None = None
    most_characters: int | None = None
    any_keyword: tuple[str, ...] = ()

    def holds(self, mode: str, text: str) -> bool:
        """Tell whether the preset fits a turn."""
        size, said = len(text), text.lower()
        return (
            (not self.modes or any(fits(pattern, mode) for pattern in self.modes))
            and (self.least_characters is None or size >= self.least_characters)
            and (self.most_characters is None or size <= self.most_characters)
            and (not self.any_keyword or any(word.lower() in said for word in self.any_keyword))
        )


_DESIGN: Final = ("architecture", "system design", "trade-off", "tradeoff", "scalab", "data model", "design a")
_PLANNING: Final = ("roadmap", "milestone", "project plan", "make a plan", "step by step", "timeline", "schedule")
_AUDIT: Final = ("audit", "code review", "review this", "security", "vulnerab", "race condition", "memory leak")

PRESETS: Final = (
    Preset(
        "general_concise", "Concise", "Answer in as few sentences as the question needs. Leave out preamble and recap."
    ),
    Preset(
        "general_deep",
        "Thorough",
        "Answer thoroughly: say what you assume, weigh the alternatives, and name what remains open.",
    ),
    Preset(
        "general_planner",
        "Planner",
        "Answer with a plan: numbered steps in order, what each needs and gives, and what could go wrong.",
    ),
    Preset("coding_default", "Coding"),
    Preset(
        "coding_audit",
        "Code audit",
        "Read the code as a reviewer: name each fault with its place, its consequence and its cure, the worst first.",
    ),
)
RULES: Final = (
    ProfileRule("general_long", 90, "general_deep", ("general",), least_characters=_LONG),
    ProfileRule("general_design", 85, "general_deep", ("general",), any_keyword=_DESIGN),
    ProfileRule("general_planning", 83, "general_planner", ("general",), any_keyword=_PLANNING),
    ProfileRule("coding_audit", 80, "coding_audit", ("coding",), any_keyword=_AUDIT),
    ProfileRule("general_short", 50, "general_concise", ("general",), most_characters=_SHORT),
)


@dataclass(frozen=True, slots=True)
class ProfilesPolicy:
    """The presets and when each is chosen. A choice holds for `review_every` turns, unless a compaction ends it."""

    presets: tuple[Preset, ...] = PRESETS
    rules: tuple[ProfileRule, ...] = RULES
    review_every: int = 6
    force_on_compaction: bool = True
    default_preset: str = "general_concise"
    by_mode: Mapping[str, str] = field(
        default_factory=lambda: {
            "general": "general_concise",
            "coding": "coding_default",
            "system_design": "general_deep",
        }
    )

    def preset(self, preset_id: str) -> Preset:
        """Give a preset; for one that there is not the default one, and a bare one where that is missing as well."""
        known = {preset.id: preset for preset in self.presets}
        return known.get(preset_id) or known.get(self.default_preset) or Preset(preset_id)


@dataclass(frozen=True, slots=True)
class ProfileState:
    """What a conversation keeps of its profile."""

    preset_id: str
    turns_since_review: int
    last_reviewed_at: str

    def to_json(self) -> dict[str, Any]:
        """Give the stored form."""
        return {
            "preset_id": self.preset_id,
            "turns_since_review": self.turns_since_review,
            "last_reviewed_at": self.last_reviewed_at,
        }

    @classmethod
    def from_json(cls, stored: Any) -> "ProfileState | None":
        """Read the stored form; None for what can't be read."""
        if not isinstance(stored, Mapping) or not isinstance(stored.get("turns_since_review"), int):
            return None
        return cls(
            str(stored.get("preset_id") or ""), stored["turns_since_review"], str(stored.get("last_reviewed_at") or "")
        )


@dataclass(frozen=True, slots=True)
class Selected:
    """The profile of one turn, why it was chosen, and what the conversation keeps of that."""

    preset: Preset
    reason: str
    reviewed: bool
    state: ProfileState

    def to_json(self) -> dict[str, Any]:
        """Give what the routing block tells."""
        return {
            "preset_id": self.preset.id,
            "label": self.preset.label or self.preset.id,
            "addon_prompt_keys": list(self.preset.addon_prompt_keys),
            "system_instructions": self.preset.instructions or None,
            "was_reviewed": self.reviewed,
            "reason": self.reason,
        }


def select(
    policy: ProfilesPolicy, state: ProfileState | None, *, mode: str, text: str, compacted: bool, now: str
) -> Selected:
    """Choose a turn's profile: the one before while its review is not due, else what mode and words ask for."""
    forced = compacted and policy.force_on_compaction
    if state is not None and not forced and state.turns_since_review < policy.review_every:
        kept = ProfileState(state.preset_id, state.turns_since_review + 1, state.last_reviewed_at)
        return Selected(policy.preset(state.preset_id), "cached", reviewed=False, state=kept)
    preset_id, reason = _chosen(policy, mode.strip().lower(), text.strip())
    preset = policy.preset(preset_id)
    return Selected(preset, reason, reviewed=True, state=ProfileState(preset.id, 0, now))


def _chosen(policy: ProfilesPolicy, mode: str, text: str) -> tuple[str, str]:
    for rule in sorted(policy.rules, key=lambda rule: -rule.priority):
        if rule.holds(mode, text):
            return rule.preset_id, f"rule:{rule.id}"
    exact = {name.lower(): preset_id for name, preset_id in policy.by_mode.items()}
    if mode in exact:
        return exact[mode], f"default_by_mode_exact:{mode}"
    fitting = [name for name in exact if fits(name, mode)]
    if fitting:
        name = max(fitting, key=len)
        return exact[name], f"default_by_mode_pattern:{name}"
    return policy.default_preset, "default"


def fits(pattern: str, mode: str) -> bool:
    """Tell whether a mode is meant: it is the pattern, or has it at its front or anywhere in it."""
    return bool(pattern) and pattern.lower() in mode.lower()
