"""Maximal marginal relevance: of what fits, what fits well and says something that the ones before have not said."""

import math
import re
from collections.abc import Mapping, Sequence
from operator import mul
from typing import Final

from app.domain.documents import FoundChunk

Vectors = Mapping[str, Sequence[float]]

_WORDS: Final = re.compile(r"\w+")


def diverse(found: Sequence[FoundChunk], vectors: Vectors, *, top_k: int, balance: float) -> list[FoundChunk]:
    """Give `top_k` of the chunks. `balance` 1 goes by how well each fits, 0 by how little it is like those before.

    Two chunks are as alike as the cosine of their vectors says, or the share of their words where either has none.
    """
    fits = _fits(found)
    words = [frozenset(_WORDS.findall(chunk.content.casefold())) for chunk in found]
    left, taken = list(range(len(found))), list[int]()
    nearest = [0.0] * len(found)
    while left and len(taken) < top_k:
        best = max(left, key=lambda place: (balance * fits[place] - (1 - balance) * nearest[place], -place))
        left.remove(best)
        taken.append(best)
        for place in left:
            one, other = (vectors.get(found[each].chunk_id) for each in (place, best))
            likeness = _overlap(words[place], words[best]) if one is None or other is None else _cosine(one, other)
            nearest[place] = max(nearest[place], likeness)
    return [found[place] for place in taken]


def _fits(found: Sequence[FoundChunk]) -> list[float]:
    """Give how well each fits beside the others: 1 for the best, 0 for the worst."""
    scores = [chunk.score for chunk in found]
    least, most = min(scores, default=0.0), max(scores, default=0.0)
    return [(score - least) / (most - least) if most > least else 1.0 for score in scores]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    size = math.hypot(*one) * math.hypot(*other)
    return sum(map(mul, one, other)) / size if size else 0.0


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 0.0
