"""What a conversation may remember and recall beyond itself, and when a turn looks for it (R246, phases 7 and 11)."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Any, Final, Literal

from app.domain.frozen import dataclass
from app.domain.memory import SCOPES, MemoryPlace, MemoryScope

CATEGORIES: Final = ("facts", "preferences", "people", "projects", "decisions", "open_loops", "todo", "tags")

RecallProfile = Literal["aggressive", "balanced", "conservative"]


@dataclass(frozen=True, slots=True)
class RecallPolicy:
    """When long-term memory is looked at, in turns of the user, and how much of it a prompt is given.

    `top_k` is for each scope.
    """

    profile: RecallProfile = "aggressive"
    cadence_turns: int = 2
    force_on_compaction: bool = True
    max_characters: int = 4200
    top_k: int = 8


RECALL_PROFILES: Final[Mapping[RecallProfile, RecallPolicy]] = {
    "aggressive": RecallPolicy(),
    "balanced": RecallPolicy("balanced", 4, True, 3200, 6),
    "conservative": RecallPolicy("conservative", 8, False, 2200, 4),
}
_BOUNDS: Final = {"cadence_turns": (1, 100), "max_characters": (300, 12_000), "top_k": (1, 50)}


def recall_policy(profile: str = "aggressive", given: Mapping[str, Any] | None = None) -> RecallPolicy:
    """Give a profile with what is set over it: numbers are brought within their bounds, what is no number is let be."""
    base = next((policy for name, policy in RECALL_PROFILES.items() if name == profile), RECALL_PROFILES["aggressive"])
    told = dict(given or {})
    changes: dict[str, Any] = {
        name: min(most, max(least, int(told[name])))
        for name, (least, most) in _BOUNDS.items()
        if isinstance(told.get(name), int | float) and not isinstance(told[name], bool) and told[name] == told[name]
    }
    if isinstance(told.get("force_on_compaction"), bool):
        changes["force_on_compaction"] = told["force_on_compaction"]
    return replace(base, **changes)


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """What of long-term memory a conversation uses. `allowed_categories` None allows all, an empty list none.

    `retrieval` may set `top_k` and `max_characters` over the service's own.
    """

    enabled: bool = True
    scopes: Mapping[str, bool] = field(default_factory=lambda: {scope: scope == "conversation" for scope in SCOPES})
    share_with_organization: bool = False
    store_atomic_docs: bool = True
    allowed_categories: tuple[str, ...] | None = None
    retrieval: Mapping[str, Any] | None = None

    @property
    def beyond(self) -> tuple[MemoryScope, ...]:
        """The scopes that are on and reach beyond the conversation."""
        return tuple(scope for scope in SCOPES if scope != "conversation" and self.scopes.get(scope))

    @property
    def readable(self) -> tuple[MemoryScope, ...]:
        """The scopes that are on."""
        return tuple(scope for scope in SCOPES if self.scopes.get(scope))

    def merged(self, given: Mapping[str, Any] | None) -> "MemoryPolicy":
        """Give the policy with another's words over it: of switches only booleans count, of names only known ones."""
        told = dict(given or {})
        switches = {
            name: told[name]
            for name in ("enabled", "share_with_organization", "store_atomic_docs")
            if isinstance(told.get(name), bool)
        }
        scopes = told.get("scopes")
        known: dict[str, bool] = {
            scope: scopes[scope]
            for scope in SCOPES
            if isinstance(scopes, Mapping) and isinstance(scopes.get(scope), bool)
        }
        categories = told.get("allowed_categories")
        retrieval = told.get("retrieval")
        return replace(
            self,
            **switches,
            scopes={**self.scopes, **known},
            allowed_categories=_known(categories) if isinstance(categories, list | tuple) else self.allowed_categories,
            retrieval=dict(retrieval) if isinstance(retrieval, Mapping) else self.retrieval,
        )

    def to_json(self) -> dict[str, Any]:
        """Give the stored and the public form."""
        return {
            "enabled": self.enabled,
            "scopes": dict(self.scopes),
            "share_with_organization": self.share_with_organization,
            "store_atomic_docs": self.store_atomic_docs,
            "allowed_categories": None if self.allowed_categories is None else list(self.allowed_categories),
            "retrieval": None if self.retrieval is None else dict(self.retrieval),
        }


@dataclass(frozen=True, slots=True)
class NewSummary:
    """A summary that a turn has made of its conversation, up to a position, and what may be remembered of it.

    `memory` is what the summarizer has noted by category, such as `facts`; `traits` are those of who remembers.
    """

    place: MemoryPlace
    session_id: str
    mode: str
    profile_id: str | None
    policy: MemoryPolicy
    text: str
    memory: Mapping[str, Any] | None
    upto: int
    made_at: datetime | None
    traits: Mapping[str, float] = field(default_factory=dict)


def _known(categories: Sequence[Any]) -> tuple[str, ...]:
    named = (name.strip().lower() for name in categories if isinstance(name, str))
    return tuple(dict.fromkeys(name for name in named if name in CATEGORIES))


@dataclass(frozen=True, slots=True)
class Review:
    """When memory was last looked at: at which turn of the user, and at what time."""

    turn: int
    at: str

    def to_json(self) -> dict[str, Any]:
        """Give the stored form."""
        return {"last_reviewed_user_turn": self.turn, "last_reviewed_at": self.at}

    @classmethod
    def from_json(cls, stored: Any) -> "Review | None":
        """Read the stored form; None where memory was never looked at."""
        if not isinstance(stored, Mapping) or not isinstance(stored.get("last_reviewed_user_turn"), int):
            return None
        return cls(stored["last_reviewed_user_turn"], str(stored.get("last_reviewed_at") or ""))


def review_due(policy: RecallPolicy, last: Review | None, turn: int, *, compacted: bool) -> tuple[bool, str]:
    """Tell whether memory is to be looked at in this turn of the user, and why or why not."""
    if last is None:
        return True, "initial_review"
    if compacted and policy.force_on_compaction:
        return True, "forced_on_compaction"
    if max(0, turn - last.turn) >= policy.cadence_turns:
        return True, "cadence_due"
    return False, "cadence_not_due"
