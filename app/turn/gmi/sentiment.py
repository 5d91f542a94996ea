"""How the user seems to feel (R255): a score for each input, and events when that lasts or is strong.

Scores come from VADER, a lexicon for English, which an optional package brings; it is loaded for the first input that
asks for it. What is kept of a session are numbers, and none of what was said.
"""

import asyncio
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final, Literal

from app.domain.errors import ConfigurationError
from app.domain.frozen import dataclass
from app.domain.persona import Persona, SentimentTracking

PACKAGE: Final = "vaderSentiment"
LOOKED_AT: Final = 2000
"""Characters of an input that are scored."""

_KEPT: Final = 5
_SHORT: Final = 50
_INTENSE, _PLEASED = 0.6, 0.5
_ERRORS: Final = 2
_BORED: Final = 4
_CONFUSED: Final = re.compile(
    r"\b(?:confus(?:ed|ing)|(?:do ?n[o']?t|don’t) understand|unclear|what do you mean|explain|clarify|huh"
    r"|does ?n[o']?t make (?:any )?sense|doesn’t make (?:any )?sense|not sure)\b|\?\?",
    re.IGNORECASE,
)

EventName = Literal["user_frustrated", "user_confused", "user_satisfied", "error_threshold_exceeded", "low_engagement"]
Severity = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class Score:
    """What a lexicon says of a text: from -1 to 1, and how many of its words are negative."""

    value: float
    negative_words: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was noticed of the conversation."""

    name: EventName
    severity: Severity


@dataclass(frozen=True, slots=True)
class Felt:
    """What one input told: its score, what is kept for the next one, and the events."""

    score: float
    polarity: Literal["positive", "neutral", "negative"]
    kept: Mapping[str, Any]
    events: tuple[Event, ...]

    def to_json(self) -> dict[str, Any]:
        """Give the form that the routing block shows."""
        events = [{"event": event.name, "severity": event.severity} for event in self.events]
        return {"score": round(self.score, 3), "polarity": self.polarity, "events": events}


def check_persona(persona: Persona) -> None:
    """ConfigurationError when a persona asks for what no package brings."""
    if persona.sentiment_tracking.enabled and find_spec(PACKAGE) is None:
        message = (
            f"The persona {persona.id!r} has sentiment_tracking on, which needs a package that is not installed: "
            f"pip install {PACKAGE}."
        )
        raise ConfigurationError(message)


class Sentiment:
    """Scores texts. The lexicon is read once, by the first text, in a thread."""

    def __init__(self) -> None:
        """Read nothing yet."""
        self._analyzer: Any = None

    async def score(self, text: str) -> Score:
        """Score a text; what VADER calls compound."""
        if self._analyzer is None:
            self._analyzer = await asyncio.to_thread(_load)
        shown = text[:LOOKED_AT]
        words = re.findall(r"[\w']+", shown.lower())
        negative = sum(1 for word in words if self._analyzer.lexicon.get(word, 0.0) < 0)
        return Score(float(self._analyzer.polarity_scores(shown)["compound"]), negative)


def _load() -> Any:
    from vaderSentiment.vaderSentiment import (  # noqa: PLC0415 - an extra that most have no use for
        SentimentIntensityAnalyzer,
    )

    return SentimentIntensityAnalyzer()


def felt(before: Mapping[str, Any], text: str, score: Score, tracking: SentimentTracking, *, errors: int = 0) -> Felt:
    """Tell what an input says, after those that came before; `errors` are those of the last entries of the trace."""
    value = score.value
    polarity: Literal["positive", "neutral", "negative"] = "neutral"
    if value < tracking.frustration_threshold:
        polarity = "negative"
    elif value > tracking.satisfaction_threshold:
        polarity = "positive"
    run = before.get("run", 0) + 1 if before.get("polarity") == polarity else 1
    lengths = [*before.get("lengths", ()), len(text)][-_KEPT:]
    scores = [*before.get("scores", ()), round(value, 3)][-tracking.history_window :]
    kept: dict[str, Any] = {"polarity": polarity, "run": run, "lengths": lengths, "scores": scores}
    noticed = _noticed(kept, text, score, tracking)
    if errors >= _ERRORS:
        noticed.append(Event("error_threshold_exceeded", "high"))
    return Felt(value, polarity, kept, tuple(noticed))


def _noticed(kept: Mapping[str, Any], text: str, score: Score, tracking: SentimentTracking) -> list[Event]:
    polarity, run, lengths = kept["polarity"], kept["run"], kept["lengths"]
    lasting, many = tracking.consecutive_turns, 2
    found: list[Event] = []
    if polarity == "negative" and (abs(score.value) > _INTENSE or run >= lasting):
        found.append(Event("user_frustrated", "high" if run >= lasting else "medium"))
    if polarity == "positive" and (score.value > _PLEASED or run > lasting):
        found.append(Event("user_satisfied", "low"))
    if _CONFUSED.search(text) or (polarity == "neutral" and score.negative_words > many):
        found.append(Event("user_confused", "medium"))
    if polarity == "neutral" and run >= _BORED and sum(lengths) / len(lengths) < _SHORT:
        found.append(Event("low_engagement", "medium"))
    return found
