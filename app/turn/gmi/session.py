"""What a GMI has of its session while an operation runs: the working memory, and the trace that it adds to.

Both are values in memory. The operation stores them with its outcome, in the same transaction (R310 to R314).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from app.domain.clock import SystemClock
from app.domain.jsontext import dumps, loads
from app.domain.persona import Persona
from app.domain.session import SessionState, TraceEntry, TraceType, bounded, merged
from app.domain.text import clean, clean_text
from app.domain.traits import changed_traits

MOST_ENTRIES: Final = 10_000
LONGEST_MESSAGE: Final = 1000
CUT: Final = "…"
_NUL: Final = rb"\u0000"
_NOTHING: Final = frozenset[str]()


class Trace:
    """What an operation did, in order, for whoever asks later why it did that. Nothing of it is streamed."""

    def __init__(self, now: Callable[[], datetime] | None = None) -> None:
        """Begin an empty trace; `now` tells the time of each entry, by default the wall clock's."""
        self._now = now or SystemClock().now
        self._entries: list[TraceEntry] = []

    def note(
        self,
        type: TraceType,  # noqa: A002 - the word of the trace's readers
        message: str,
        *,
        related_id: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Add an entry. Never raises: details that can't be stored are left out."""
        about = None if related_id is None else clean_text(related_id)
        self._entries.append(TraceEntry(self._now(), type, clean_text(message), about, _stored(details)))
        if len(self._entries) > MOST_ENTRIES:
            del self._entries[0]

    def entries(self, *, most: int, longest: int = LONGEST_MESSAGE) -> tuple[TraceEntry, ...]:
        """Give the last `most` entries, the oldest first, their messages cut to `longest` characters."""
        return tuple(_cut(entry, longest) for entry in self._entries[-most:])


class Session:
    """A session as one operation has it. Changes count at once for the operation, and for others once it has ended."""

    def __init__(self, trace: Trace | None = None) -> None:
        """Begin without anything kept."""
        self.trace = trace or Trace()
        self.state = SessionState()
        self._changed: frozenset[str] = _NOTHING
        self._mind: dict[str, Any] = {}

    def begin(self, state: SessionState) -> None:
        """Take what the session has kept."""
        self.state = state
        self._changed = _NOTHING
        self._mind.clear()

    def change(
        self,
        *,
        mood: str | None = None,
        user_context: Mapping[str, Any] | None = None,
        task_context: Mapping[str, Any] | None = None,
        mind: Mapping[str, Any] | None = None,
    ) -> None:
        """Change what is given: user context as a turn's does (see `merged`), task context and mind key by key.

        Raises TooLargeError, and TypeError or ValueError for what has no JSON form; nothing is changed then.
        """
        new: dict[str, Any] = {}
        if mood is not None:
            new["mood"] = clean_text(mood)
        if user_context is not None:
            new["user_context"] = merged(self.state.user_context, _plain(user_context))
        if task_context is not None:
            new["task_context"] = bounded({**self.state.task_context, **_plain(task_context)}, "task context")
        if mind is not None:
            told = _plain(mind)
            new["mind"] = bounded({**self.state.mind, **told}, "mind")
            self._mind |= told
        self.state = replace(self.state, **new)
        self._changed |= new.keys()

    def change_traits(self, persona: Persona, given: Mapping[str, float | None]) -> None:
        """Change traits of the persona for this session, from its next prompt on; a null takes one back.

        Whoever stores last wins, as with the mood, if a host changes traits while the operation runs.

        Raises ValidationError for what the persona does not allow; nothing is changed then.
        """
        self.change(mind={"traits": changed_traits(persona, self.state.traits, given)})

    @property
    def changes(self) -> dict[str, Any]:
        """The values that this operation has changed, by name; of the mind, the parts."""
        changed = {name: getattr(self.state, name) for name in sorted(self._changed)}
        return {**changed, "mind": dict(self._mind)} if self._mind else changed


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """Give a copy that can be stored. Lone surrogates have no JSON form here, so NUL is all that may be to clean."""
    text = dumps(dict(value))
    told: dict[str, Any] = loads(text)
    return clean(told)[0] if _NUL in text else told


def _stored(details: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if not details:
        return None
    try:
        return _plain(details)
    except (TypeError, ValueError):
        return None


def _cut(entry: TraceEntry, longest: int) -> TraceEntry:
    if len(entry.message) <= longest:
        return entry
    return replace(entry, message=entry.message[: max(0, longest - len(CUT))] + CUT)
