"""What a user thinks of an answer, as a host tells it with the next turn."""

from collections.abc import Mapping
from typing import Any, Literal

from app.domain.frozen import dataclass

Polarity = Literal["positive", "neutral", "negative"]

_GOOD, _BAD = 4, 2


@dataclass(frozen=True, slots=True)
class Feedback:
    """A label, a score from 1 to 5, words; all may be left out. `turn_id` names the turn that it is about."""

    label: Polarity | None = None
    score: int | None = None
    comment: str | None = None
    turn_id: str | None = None

    @property
    def polarity(self) -> Polarity:
        """What it comes to: the label says it, else the score."""
        if self.label is not None:
            return self.label
        if self.score is not None and self.score >= _GOOD:
            return "positive"
        return "negative" if self.score is not None and self.score <= _BAD else "neutral"

    def to_json(self) -> dict[str, Any]:
        """Give the stored form; what is not set is left out."""
        shown = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in shown.items() if value is not None}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> "Feedback | None":
        """Read the stored form; None where there is none."""
        return None if stored is None else cls(**{name: stored[name] for name in cls.__slots__ if name in stored})
