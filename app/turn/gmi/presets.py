"""Metaprompts that ship: a persona that tracks sentiment takes them by name, and one of its own of that id wins."""

from typing import Final

from app.domain.persona import MetaPrompt

_LAST: Final = "\n\nWhat was said last:\n{{conversation}}"


def _on(name: str, event: str, text: str, temperature: float = 0.3) -> MetaPrompt:
    return MetaPrompt(name, text + _LAST, "event_based", event_name=event, temperature=temperature)


PRESETS: Final = {
    "frustration_recovery": _on(
        "gmi_frustration_recovery",
        "user_frustrated",
        "The user seems to be frustrated. What is likely the cause, and which mood would help now? Note in an imprint "
        "what should be done differently.",
    ),
    "confusion_clarification": _on(
        "gmi_confusion_clarification",
        "user_confused",
        "The user seems to be confused (skill level so far: {{user_skill_level}}). Which skill level do the messages "
        "show, and what has to be explained more simply?",
    ),
    "satisfaction_reinforcement": _on(
        "gmi_satisfaction_reinforcement",
        "user_satisfied",
        "The user seems to be content. Note in an imprint what worked, so that it is kept up. Is the task more complex "
        "by now ({{task_complexity}})?",
    ),
    "error_recovery": _on(
        "gmi_error_recovery",
        "error_threshold_exceeded",
        "Several things have failed of late:\n{{trace}}\n\nWhich mood and which caution fit now? Note in an imprint "
        "what to avoid.",
    ),
    "engagement_boost": _on(
        "gmi_engagement_boost",
        "low_engagement",
        "The user says little. Which mood could make the conversation livelier, and what might the user care about?",
        temperature=0.5,
    ),
}
"""By the names that files use."""
