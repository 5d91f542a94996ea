"""What a session changes about its turns: options of the model, preferences, and which skills are on (R11, R12).

A host changes it by the API, a persona by tools of its own and within the bounds of its file.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Final

from app.domain.errors import TooLargeError
from app.domain.frozen import dataclass
from app.domain.jsontext import dumps
from app.domain.skills import skill_id

LARGEST: Final = 16 << 10
"""Bytes of a session's overrides as JSON: they are read in every turn of the session."""

OPTIONS: Final = ("temperature", "top_p", "max_tokens", "reasoning_effort")
"""The options of a turn that a session may set."""


@dataclass(frozen=True, slots=True)
class OverridesChange:
    """A change: what is None stays, and a null among the values takes that one out.

    A skill is named by its id, with or without `skill:` in front.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    preferences: Mapping[str, Any] = field(default_factory=dict)
    enable_skills: tuple[str, ...] = ()
    disable_skills: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Overrides:
    """The overrides of one session. `own_changes` counts those that a persona made by itself."""

    options: Mapping[str, Any] = field(default_factory=dict)
    preferences: Mapping[str, Any] = field(default_factory=dict)
    enabled_skills: tuple[str, ...] = ()
    disabled_skills: tuple[str, ...] = ()
    own_changes: int = 0

    def changed(self, change: OverridesChange, *, own: bool = False) -> "Overrides":
        """Give the overrides with a change. TooLargeError when that would be more than a session may keep.

        A skill that is switched on is no longer off, and one that is switched off no longer on.
        """
        on, off = list(self.enabled_skills), list(self.disabled_skills)
        for name in map(skill_id, change.enable_skills):
            on, off = [*_without(on, name), name], _without(off, name)
        for name in map(skill_id, change.disable_skills):
            on, off = _without(on, name), [*_without(off, name), name]
        new = replace(
            self,
            options=_merged(self.options, change.options),
            preferences=_merged(self.preferences, change.preferences),
            enabled_skills=tuple(on),
            disabled_skills=tuple(off),
            own_changes=self.own_changes + own,
        )
        size = len(dumps(new.to_json()))
        if size > LARGEST:
            message = f"The session's overrides would be {size} bytes of JSON; at most {LARGEST} are kept."
            raise TooLargeError(message, size=size, limit=LARGEST)
        return new

    def to_json(self) -> dict[str, Any]:
        """Give the stored form; what is empty is left out."""
        shown = {
            "options": dict(self.options),
            "preferences": dict(self.preferences),
            "enabled_skills": list(self.enabled_skills),
            "disabled_skills": list(self.disabled_skills),
            "own_changes": self.own_changes,
        }
        return {name: value for name, value in shown.items() if value}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> "Overrides":
        """Read the stored form."""
        kept = stored or {}
        return cls(
            options=kept.get("options") or {},
            preferences=kept.get("preferences") or {},
            enabled_skills=tuple(kept.get("enabled_skills") or ()),
            disabled_skills=tuple(kept.get("disabled_skills") or ()),
            own_changes=kept.get("own_changes") or 0,
        )


def _merged(kept: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**kept, **given}.items() if value is not None}


def _without(names: list[str], name: str) -> list[str]:
    return [kept for kept in names if kept != name]
