"""Parts of a prompt that depend on the moment: a persona's contextual elements, and what the user prefers."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.domain.persona import ContextualElement, Criteria
from app.prompts.slots import PromptInput

MOST_ELEMENTS: Final = 10

_BRIEF: Final = "Be brief: say what is needed and no more."
_BALANCED: Final = "Answer at a moderate length: what is needed, and what helps to understand it."
_DETAILED: Final = "Answer in detail: explain, give reasons and examples."
_VERBOSITY: Final[Mapping[str, str]] = {
    **dict.fromkeys(("low", "brief", "concise", "short", "minimal"), _BRIEF),
    **dict.fromkeys(("medium", "balanced", "normal", "default", "moderate"), _BALANCED),
    **dict.fromkeys(("high", "verbose", "detailed", "comprehensive", "thorough"), _DETAILED),
}
_FORMATS: Final = ("preferred_format", "response_format", "format")


def chosen_elements(given: PromptInput) -> list[ContextualElement]:
    """Give the persona's elements whose criteria hold, the highest priority first, at most ten."""
    found = [element for element in given.persona.contextual_elements if _holds(element.criteria, given)]
    return sorted(found, key=lambda element: -element.priority)[:MOST_ELEMENTS]


def _holds(criteria: Criteria, given: PromptInput) -> bool:
    """Tell whether all that is asked for is so; an element that asks for nothing never applies."""
    if criteria == Criteria():
        return False
    user, task = given.session.user_context, given.session.task_context
    wanted = (
        (criteria.mood, given.mood),
        (criteria.user_skill_level, user.get("skill_level")),
        (criteria.task_complexity, task.get("complexity")),
        (criteria.language, given.answers_in),
    )
    if any(value is not None and value != found for value, found in wanted):
        return False
    if criteria.task_hint is not None and criteria.task_hint not in str(task.get("domain") or ""):
        return False
    return given.signals.issuperset(criteria.conversation_signals)


def verbosity(given: PromptInput) -> Sequence[str]:
    """Say how long answers are to be, where the user has a preference that is understood."""
    wanted = _preferences(given).get("verbosity")
    return (_VERBOSITY[wanted.lower()],) if isinstance(wanted, str) and wanted.lower() in _VERBOSITY else ()


def answer_format(given: PromptInput) -> Sequence[str]:
    """Say in which form the user likes answers: one, or several to choose from."""
    preferences = _preferences(given)
    if not preferences:
        return ()
    one = next((preferences[name] for name in _FORMATS if isinstance(preferences.get(name), str)), "")
    several = preferences.get("preferred_formats")
    if not one and isinstance(several, list):
        one = " or ".join(str(entry) for entry in several if entry)
    return (f"Where it suits the answer, give it in the form that the user prefers: {one}.",) if one.strip() else ()


def _preferences(given: PromptInput) -> Mapping[str, Any]:
    found = given.session.user_context.get("preferences")
    return found if isinstance(found, dict) else {}
