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
    units = [_unit(vectors.get(chunk.chunk_id)) for chunk in found]
    while left and len(taken) < top_k:
        best = max(left, key=lambda place: (balance * fits[place] - (1 - balance) * nearest[place], -place))
        left.remove(best)
        taken.append(best)
        for place in left:
            one, other = units[place], units[best]
            likeness = (
                _overlap(words[place], words[best]) if one is None or other is None else sum(map(mul, one, other))
            )
            nearest[place] = max(nearest[place], likeness)
    return [found[place] for place in taken]


def _fits(found: Sequence[FoundChunk]) -> list[float]:
    """Give how well each fits beside the others: 1 for the best, 0 for the worst."""
    scores = [chunk.score for chunk in found]
    least, most = min(scores, default=0.0), max(scores, default=0.0)
    return [(score - least) / (most - least) if most > least else 1.0 for score in scores]


def _unit(vector: Sequence[float] | None) -> Sequence[float] | None:
    """Give the vector with the length one, so that a product of two is their cosine."""
    length = math.hypot(*vector) if vector is not None else 0.0
    return [number / length for number in vector] if vector is not None and length else vector


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 0.0
