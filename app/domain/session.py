"""What a session keeps between turns: mood, user context and task context, and its reasoning trace (R310 to R314)."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, Final, Literal

from app.domain.errors import TooLargeError
from app.domain.frozen import dataclass
from app.domain.jsontext import dumps
from app.domain.turn import Caller

LARGEST_CONTEXT: Final = 16 << 10
"""Bytes of a context as JSON: what is kept is read, and told, in every turn of its session."""

FIRST_MOOD: Final = "neutral"
MOODS: Final = (
    FIRST_MOOD, "focused", "empathetic", "curious", "assertive", "analytical", "frustrated", "creative",
)  # fmt: skip

TraceType = Literal[
    "interaction_start",
    "interaction_end",
    "llm_call_start",
    "llm_call_complete",
    "tool_call_requested",
    "tool_permission_check_result",
    "tool_execution_result",
    "rag_query_result",
    "sentiment_event",
    "user_feedback",
    "metaprompts_run",
    "warning",
    "error",
]


@dataclass(frozen=True, slots=True)
class SessionKey:
    """Which session: a user's, in an organization; another persona's turns in it are the same session's."""

    organization_id: str
    user_id: str
    session_id: str

    @classmethod
    def of(cls, caller: Caller, session_id: str) -> "SessionKey":
        """Give the key of a caller's session."""
        return cls(caller.organization_id, caller.user_id, session_id)


@dataclass(frozen=True, slots=True)
class SessionState:
    """The working memory of a session. Version 0 is that of a session of which nothing is kept yet.

    An empty `mood` is that of a session whose mood nothing has changed yet.
    """

    mood: str = ""
    user_context: Mapping[str, Any] = field(default_factory=dict)
    task_context: Mapping[str, Any] = field(default_factory=dict)
    mind: Mapping[str, Any] = field(default_factory=dict)
    version: int = 0

    @property
    def traits(self) -> Mapping[str, float]:
        """The traits that the session has come to, where they are not the persona's."""
        traits: Mapping[str, float] = self.mind.get("traits") or {}
        return traits


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One entry of a reasoning trace. `related_id` names what it is about, such as a tool call."""

    at: datetime
    type: TraceType
    message: str
    related_id: str | None = None
    details: Mapping[str, Any] | None = None


def merged(kept: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Give the user context that results when a turn brings one: `preferences` key by key, other keys replace.

    A null takes a key out. TooLargeError when the result is larger than a session may keep.
    """
    told = dict(given)
    before, new = kept.get("preferences"), told.get("preferences")
    if isinstance(before, Mapping) and isinstance(new, Mapping):
        told["preferences"] = _without_nulls({**before, **new})
    elif isinstance(new, Mapping):
        told["preferences"] = _without_nulls(new)
    return bounded(_without_nulls({**kept, **told}), "user context")


def bounded(context: dict[str, Any], name: str) -> dict[str, Any]:
    """Give the context, or raise TooLargeError when it is larger than a session may keep."""
    size = len(dumps(context))
    if size > LARGEST_CONTEXT:
        message = (
            f"The session's {name} would be {size} bytes of JSON; at most {LARGEST_CONTEXT} are kept. Send less, or "
            "take keys out by sending null for them."
        )
        raise TooLargeError(message, size=size, limit=LARGEST_CONTEXT)
    return context


def _without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
