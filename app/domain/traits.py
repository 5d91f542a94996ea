"""A persona's traits as one session has them: told, and changed within what the persona allows.

A session keeps only what differs, by trait; the persona itself, which other sessions share, never changes.
"""

from collections.abc import Mapping
from typing import Any, Final

from app.domain.errors import ValidationError
from app.domain.persona import Persona

MOST_TRAITS: Final = 64
"""How many traits a persona has at most."""


def told_traits(persona: Persona, changed: Mapping[str, float]) -> dict[str, float]:
    """Give all traits of the persona as the session has them; what it has of other personas' traits is not told."""
    return {name: changed.get(name, own) for name, own in persona.personality_traits.items()}


def judged_traits(persona: Persona, given: Mapping[str, Any]) -> tuple[dict[str, float | None], list[str]]:
    """Part a change into what the persona allows and sentences about what it doesn't; a null takes a trait back."""
    allowed: dict[str, float | None] = {}
    faults: list[str] = []
    for name, value in given.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if name not in persona.personality_traits:
            faults.append(f"{name!r} is no trait of the persona {persona.id!r}")
        elif value is not None and not (number and 0 <= value <= 1):
            faults.append(f"{name!r} must be a number from 0 to 1, or null")
        else:
            allowed[name] = None if value is None else float(value)
    return allowed, faults


def changed_traits(persona: Persona, kept: Mapping[str, float], given: Mapping[str, Any]) -> dict[str, float]:
    """Give what the session keeps after a change; ValidationError when any part of it may not be."""
    allowed, faults = judged_traits(persona, given)
    if faults:
        known = ", ".join(sorted(persona.personality_traits)) or "none"
        message = f"The traits can't be changed: {'; '.join(faults)}. The persona's traits are: {known}."
        raise ValidationError(message, traits=sorted(persona.personality_traits))
    return {name: value for name, value in {**kept, **allowed}.items() if value is not None}
