"""How strong a memory is and how well it fits: the formulas of cognitive memory, as pure functions.

Strengths, similarities and scores are from 0 to 1, valence and arousal from -1 to 1, times in seconds.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from app.domain.frozen import dataclass

BASE_STABILITY: Final = 3600.0
"""Seconds after which a memory of no strength would have faded to a third."""

LEAST_STABILITY: Final = 60.0
STRENGTH: Final = 0.5
FLASHBULB: Final = 0.8
MOVING: Final = 0.3
"""From what sentiment on, to either side, a text counts as one with feeling."""

INTERFERING: Final = 0.7
"""From what similarity on two memories are in each other's way."""

MOODS: Final = {
    "empathetic": (0.55, 0.15),
    "curious": (0.35, 0.45),
    "assertive": (0.15, 0.35),
    "analytical": (0.1, -0.1),
    "focused": (0.2, 0.1),
    "frustrated": (-0.65, 0.6),
    "creative": (0.45, 0.35),
    "neutral": (0.0, 0.0),
}
"""Valence and arousal of each mood."""


@dataclass(frozen=True, slots=True)
class Weights:
    """How much a persona makes of what is new, of procedures and of feelings; each is in the middle without a trait."""

    openness: float = 0.65
    conscientiousness: float = 0.65
    emotionality: float = 0.6

    @classmethod
    def of(cls, traits: Mapping[str, float]) -> "Weights":
        """Give the weights of a persona's traits, from 0 to 1 each; traits of other names weigh nothing."""
        openness, conscientiousness, emotionality = (
            min(1.0, max(0.0, traits.get(name, 0.5))) for name in ("openness", "conscientiousness", "emotionality")
        )
        return cls(0.3 + 0.7 * openness, 0.3 + 0.7 * conscientiousness, 0.2 + 0.8 * emotionality)


@dataclass(frozen=True, slots=True)
class Moment:
    """What is told of a memory when it is made: the mood (`valence`, `arousal`), and the `sentiment` of its content.

    `novel` is what is like nothing before, `procedure` says how something is done, `explicit` was asked for.
    """

    valence: float = 0.0
    arousal: float = 0.0
    sentiment: float = 0.0
    novel: bool = False
    procedure: bool = False
    explicit: bool = False


@dataclass(frozen=True, slots=True)
class Vitality:
    """How alive a memory is: what it began with, how long that lasts, and when it was last told."""

    strength: float
    stability: float
    intensity: float
    accessed_at: datetime
    recalled: int = 0

    def at(self, now: datetime) -> float:
        """Give the strength that is left."""
        age = max(0.0, (now - self.accessed_at).total_seconds())
        return self.strength * math.exp(-age / self.stability)

    def told(self, now: datetime) -> "Vitality":
        """Give what telling it makes of it: the more of it had faded, the longer it lasts from now on."""
        difficulty = max(0.1, 1 - self.at(now))
        growth = (1.5 + 2 * difficulty) / (1 + 0.1 * self.recalled) * (1 + 0.3 * self.intensity)
        return replace(
            self,
            strength=min(1.0, self.strength + 0.1),
            stability=min(self.stability * growth, timedelta(days=3650).total_seconds()),
            accessed_at=now,
            recalled=self.recalled + 1,
        )

    def unused(self) -> "Vitality":
        """Give what is left of it when it was told and the reply made nothing of it."""
        return replace(self, strength=self.strength * 0.9, stability=max(LEAST_STABILITY, self.stability * 0.5))


def felt(sentiment: float, mood: float) -> float:
    """Give the valence of a memory: that of its content for the most part, and that of the mood in which it is made."""
    return 0.7 * sentiment + 0.3 * mood


def encoded(now: datetime, moment: Moment, weights: Weights) -> tuple[Vitality, float]:
    """Give what a new memory begins with, and its importance; one that was asked for begins at full strength and lasts.

    Whether a text is social, cooperative, about right and wrong, on the topic, or contradicts another is not judged,
    since that takes a model: attention is then what the rest makes of it.
    """
    level = (moment.arousal + 1) / 2
    content = felt(moment.sentiment, moment.valence)
    intensity = abs(content) * level
    flashbulb = intensity > FLASHBULB or moment.explicit
    attention = 0.5
    attention += weights.openness * 0.15 if moment.novel else 0.0
    attention += weights.conscientiousness * 0.15 if moment.procedure else 0.0
    attention += weights.emotionality * 0.10 if abs(moment.sentiment) >= MOVING else 0.0
    strength = (
        STRENGTH
        * max(0.3, 1 - 4 * (level - 0.5) ** 2)
        * (1 + intensity * weights.emotionality * 0.5)
        * attention
        * (1 + max(0.0, moment.valence * content) * weights.emotionality * 0.3)
    )
    strength = 1.0 if moment.explicit else min(1.0, strength * (2 if flashbulb else 1))
    stability = BASE_STABILITY * (1 + 6 * strength) * (5 if flashbulb else 1)
    importance = 1.0 if moment.explicit else min(1.0, 0.6 * strength + 0.4 * attention)
    return Vitality(strength, stability, intensity, now), importance


def overlap(similarity: float) -> float:
    """Tell how much two memories are in each other's way."""
    return max(0.0, (similarity - INTERFERING) / (1 - INTERFERING))


def after_newer(strength: float, similarity: float) -> float:
    """Give the strength that an old memory has left behind a new one that is like it."""
    return strength * (1 - 0.15 * overlap(similarity))


def held_back(others: list[tuple[float, float]]) -> float:
    """Give the share of its strength that a new memory loses to old ones: of each, the similarity and the strength."""
    return min(0.3, sum(0.1 * overlap(similarity) * strength for similarity, strength in others))


def score(
    similarity: float, vitality: Vitality, now: datetime, *, created_at: datetime, valence: float, mood: float,
    confidence: float, activation: float = 0.0,
) -> float:  # fmt: skip
    """Give how well a memory fits. `activation` is what reaches it over its links from those that fit best."""
    age = max(0.0, (now - created_at).total_seconds())
    recency = (1 + 0.2 * math.exp(-age / 86_400)) / 1.2
    emotional = (1 + 0.25 * max(0.0, mood * valence)) / 1.25
    return (
        0.35 * similarity
        + 0.25 * vitality.at(now)
        + 0.15 * emotional
        + 0.10 * recency
        + 0.10 * activation
        + 0.05 * (0.5 + 0.5 * confidence)
    )
