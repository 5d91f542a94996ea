"""Ranks texts by a query in memory: by the words they share (BM25), and by meaning where there are vectors."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

_WORD: Final = re.compile(r"[^\W_]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SATURATION: Final = 1.2
_LENGTH: Final = 0.75
_FUSION: Final = 60
LEAST_SIMILAR: Final = 0.3
"""How alike (cosine) a text must be to count as found by its meaning."""

_COMMON_TEXT: Final = """
a an and are as at be by can do for from have i in is it me my of on or please that the this to what with you your
der die das ein eine und ist ich mir zu von für mit was wie
"""
COMMON: Final = frozenset(_COMMON_TEXT.split())
"""Words that say nothing of what is wanted."""


def words(text: str) -> list[str]:
    """Give a text's words in small letters: names in camel and snake case are taken apart, endings are cut."""
    found = _WORD.findall(_HUMP.sub(" ", text))
    return [_stem(word.casefold()) for word in found if word.casefold() not in COMMON]


def by_words(query: str, texts: Sequence[str]) -> list[int]:
    """Give the places of the texts that share a word with the query, the best first."""
    asked = set(words(query))
    counted = [Counter(words(text)) for text in texts]
    lengths = [sum(counts.values()) for counts in counted]
    mean = sum(lengths) / len(lengths) if lengths else 0.0
    scores = [0.0] * len(texts)
    for word in asked:
        having = sum(1 for counts in counted if word in counts)
        weight = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for place, counts in enumerate(counted):
            if word in counts:
                scale = _SATURATION * (1 - _LENGTH + _LENGTH * lengths[place] / mean)
                scores[place] += weight * counts[word] * (_SATURATION + 1) / (counts[word] + scale)
    return sorted((place for place, score in enumerate(scores) if score > 0), key=lambda place: (-scores[place], place))


def by_meaning(query: Sequence[float], vectors: Sequence[Sequence[float]]) -> list[int]:
    """Give the places of the vectors that are like enough to the query's, the best first."""
    alike = [_cosine(query, vector) for vector in vectors]
    return sorted(
        (place for place, score in enumerate(alike) if score >= LEAST_SIMILAR), key=lambda place: -alike[place]
    )


def fused(*rankings: Sequence[int]) -> list[int]:
    """Give one ranking of several: what stands high in one, or in more than one, comes first."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, place in enumerate(ranking):
            scores[place] = scores.get(place, 0.0) + 1 / (_FUSION + rank)
    return sorted(scores, key=lambda place: (-scores[place], place))


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    if len(one) != len(other):
        return 0.0
    size = math.hypot(*one) * math.hypot(*other)
    return sum(map(float.__mul__, map(float, one), map(float, other))) / size if size else 0.0


def _stem(word: str) -> str:
    """Cut what a plural adds; a rule for one language that does little harm in others."""
    least = 4
    return word[:-1] if len(word) >= least and word.endswith("s") and not word.endswith("ss") else word
