"""Skills: written instructions that a session switches on and off, and what a prompt tells of them (R12)."""

from collections.abc import Iterable, Sequence
from typing import Final

from app.domain.frozen import dataclass

SHOWN_IN_FULL: Final = 3
SHOWN_CHARACTERS: Final = 1200
MOST_NAMES: Final = 20
"""How many names a list in a prompt has: what is told of skills is bounded, however many there are."""

CUT: Final = "…"
ON: Final = "Skills of this session. When a task is what a skill is for, follow its instructions."
OFF: Final = "Skills that are switched off; do not use them:"


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill. `id` is the name of its folder; `instructions` is the Markdown behind its front matter."""

    id: str
    description: str
    instructions: str
    category: str = ""
    license: str | None = None


def skill_id(name: str) -> str:
    """Give the id that a name means: `skill:` in front, case and white space around it count for nothing."""
    return name.strip().lower().removeprefix("skill:").strip()


def skill_context(enabled: Sequence[Skill], disabled: Iterable[str]) -> str | None:
    """Give what a prompt tells of a session's skills; None when none is on and none is off."""
    off = sorted(set(disabled))
    if not enabled and not off:
        return None
    parts = [ON, *map(_in_full, enabled[:SHOWN_IN_FULL])] if enabled else []
    rest = [skill.id for skill in enabled[SHOWN_IN_FULL:]]
    if rest:
        parts.append(f"Further skills that are on: {len(rest)} ({_listed(rest)}).")
    if off:
        parts.append(f"{OFF} {_listed(off)}.")
    return "\n\n".join(parts)


def _in_full(skill: Skill) -> str:
    about = f" ({skill.category})" if skill.category else ""
    content = skill.instructions.strip()
    if len(content) > SHOWN_CHARACTERS:
        content = content[:SHOWN_CHARACTERS] + CUT
    return f"## {skill.id}{about}\n{skill.description}\n\n{content}".strip()


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown}, and {len(names) - MOST_NAMES} more"
