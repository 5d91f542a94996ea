"""How strong a memory is and how well it fits: the formulas of cognitive memory, as pure functions.

Strengths, similarities and scores are from 0 to 1, valence and arousal from -1 to 1, times in seconds.
"""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

BASE_STABILITY: Final = 3600.0
"""Seconds after which a memory of no strength would have faded to a third."""

STRENGTH: Final = 0.5
SENSITIVITY: Final = 0.6
"""How much a mood changes what is encoded: the weight of an emotionality in the middle, 0.2 + 0.8 * 0.5."""

OPENNESS: Final = 0.65
"""How much weight new things have: the weight of an openness in the middle, 0.3 + 0.7 * 0.5."""

FLASHBULB: Final = 0.8
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


def encoded(
    now: datetime, *, valence: float, arousal: float, sentiment: float, novel: bool, explicit: bool
) -> Vitality:
    """Give what a new memory begins with; one that was asked for begins at full strength and lasts."""
    level = (arousal + 1) / 2
    content = 0.7 * sentiment + 0.3 * valence
    intensity = abs(content) * level
    flashbulb = intensity > FLASHBULB or explicit
    attention = min(1.0, 0.5 + (OPENNESS * 0.15 if novel else 0.0))
    strength = (
        STRENGTH
        * max(0.3, 1 - 4 * (level - 0.5) ** 2)
        * (1 + intensity * SENSITIVITY * 0.5)
        * attention
        * (1 + max(0.0, valence * content) * SENSITIVITY * 0.3)
    )
    strength = 1.0 if explicit else min(1.0, strength * (2 if flashbulb else 1))
    stability = BASE_STABILITY * (1 + 6 * strength) * (5 if flashbulb else 1)
    return Vitality(strength, stability, intensity, now)


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
    confidence: float,
) -> float:  # fmt: skip
    """Give how well a memory fits. The share of a graph of memories, 0.1, is nobody's: there is no graph."""
    age = max(0.0, (now - created_at).total_seconds())
    recency = (1 + 0.2 * math.exp(-age / 86_400)) / 1.2
    emotional = (1 + 0.25 * max(0.0, mood * valence)) / 1.25
    return (
        0.35 * similarity
        + 0.25 * vitality.at(now)
        + 0.15 * emotional
        + 0.10 * recency
        + 0.05 * (0.5 + 0.5 * confidence)
    )
