"""Links between memories: those that were made or told together lead to each other, the oftener the better.

A trace keeps its own links, so they are read and written with it. They change the order of what fits, and never tell
what does not.
"""

from collections.abc import Mapping, Sequence
from typing import Final

HEBB: Final = 0.1
"""What a link gains each time that both of its ends are told, or made, together."""

DECAY: Final = 0.5
DEPTH: Final = 3
THRESHOLD: Final = 0.1
"""What is less than this goes no further and counts for nothing."""

MOST_LINKS: Final = 16
"""How many links a trace keeps; the weakest go."""

Links = Mapping[str, float]
"""The weights of a trace's links, from 0 to 1, by the ids of the others."""


def linked(links: Links, others: Sequence[str]) -> dict[str, float]:
    """Give a trace's links after it was told or made together with others."""
    grown = dict(links)
    for other in others:
        grown[other] = min(1.0, grown.get(other, 0.0) + HEBB)
    kept = sorted(grown, key=lambda name: (-grown[name], name))[:MOST_LINKS]
    return {name: round(grown[name], 6) for name in kept}


def activation(seeds: Sequence[str], links: Mapping[str, Links]) -> dict[str, float]:
    """Give what spreads from the seeds over the links of the traces at hand: for each trace the most that reaches it.

    A seed sends out 1. Each step keeps half, times the link's weight; a link leads both ways. Seeds also reach each
    other, and none reaches itself.
    """
    ways = _both_ways(links)
    reached: dict[str, float] = {}
    for seed in seeds:
        best, front = {seed: 1.0}, {seed: 1.0}
        for _ in range(DEPTH):
            further: dict[str, float] = {}
            for place, held in front.items():
                for other, weight in ways.get(place, {}).items():
                    sent = held * weight * DECAY
                    if sent >= THRESHOLD - 1e-9 and sent > best.get(other, 0.0):
                        best[other] = further[other] = sent
            front = further
        del best[seed]
        for place, held in best.items():
            reached[place] = max(held, reached.get(place, 0.0))
    return reached


def _both_ways(links: Mapping[str, Links]) -> dict[str, dict[str, float]]:
    ways: dict[str, dict[str, float]] = {}
    for one, others in links.items():
        for other, weight in others.items():
            if other in links:
                for begin, end in ((one, other), (other, one)):
                    way = ways.setdefault(begin, {})
                    way[end] = max(weight, way.get(end, 0.0))
    return ways
