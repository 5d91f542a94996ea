"""Maximal marginal relevance, against the formula itself and on a shelf of documents."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.documents import FoundChunk
from app.memory.diversity import diverse
from tests.memory.shelf import Topics, open_shelf


def chunk(name: str, content: str, score: float) -> FoundChunk:
    return FoundChunk(name, 1, "default", content, None, None, None, {}, score)


def names(found: Sequence[FoundChunk]) -> str:
    return "".join(one.document_id for one in found)


DOUBLE = [chunk("a", "red car", 1.0), chunk("b", "red car", 0.9), chunk("c", "blue boat", 0.5), chunk("d", "sea", 0.0)]


@pytest.mark.parametrize(("balance", "order"), [(1.0, "abcd"), (0.9, "abcd"), (0.7, "acbd"), (0.5, "acdb")])
def test_the_less_the_fit_counts_the_later_a_repetition_comes(balance: float, order: str) -> None:
    assert names(diverse(DOUBLE, {}, top_k=4, balance=balance)) == order
    assert names(diverse(DOUBLE, {}, top_k=2, balance=balance)) == order[:2]


def test_vectors_tell_likeness_before_words_do_and_need_not_be_there_for_all() -> None:
    vectors = {"a#1": (1.0, 0.0), "b#1": (0.0, 1.0), "c#1": (2.0, 0.0)}
    assert names(diverse(DOUBLE, vectors, top_k=3, balance=0.0)) == "abd"
    assert names(diverse(DOUBLE[:2], {"a#1": (0.0, 0.0), "b#1": (0.0, 0.0)}, top_k=2, balance=0.5)) == "ab"


def test_nothing_and_what_fits_alike_are_no_fault() -> None:
    assert diverse([], {}, top_k=5, balance=0.7) == []
    assert names(diverse([chunk(name, name, 0.3) for name in "abc"], {}, top_k=9, balance=0.7)) == "abc"


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(-1, 1), st.floats(0.1, 1)), max_size=8),
    st.integers(1, 8),
    st.floats(0, 1),
)
def test_each_choice_has_the_greatest_marginal_relevance_of_those_left(
    given_: list[tuple[float, float, float]], top_k: int, balance: float
) -> None:
    found = [chunk(str(place), "", score) for place, (score, _, _) in enumerate(given_)]
    vectors = {one.chunk_id: given_[place][1:] for place, one in enumerate(found)}
    taken = diverse(found, vectors, top_k=top_k, balance=balance)
    assert len(taken) == min(top_k, len(found)) == len({one.chunk_id for one in taken})
    scores = [one.score for one in found]

    def marginal(one: FoundChunk, before: Sequence[FoundChunk]) -> float:
        width = max(scores) - min(scores)
        fit = (one.score - min(scores)) / width if width else 1.0
        near = max((cosine(vectors[one.chunk_id], vectors[other.chunk_id]) for other in before), default=0.0)
        return balance * fit - (1 - balance) * max(0.0, near)

    for place, one in enumerate(taken):
        left = [other for other in found if other not in taken[:place]]
        assert marginal(one, taken[:place]) >= max(marginal(other, taken[:place]) for other in left) - 1e-9


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    (a, b), (c, d) = one, other
    return (a * c + b * d) / math.sqrt((a * a + b * b) * (c * c + d * d))


@pytest.mark.parametrize("topics", [None, Topics()])
async def test_a_search_by_mmr_leaves_out_what_is_only_repeated(shared_database: str, topics: Topics | None) -> None:
    async with open_shelf(shared_database, topics) as shelf:
        for name in ("one", "two", "three"):
            await shelf.put(name, "The dog sleeps in the garden.")
        await shelf.put("other", "A dog and a car in the garden.")
        asked: dict[str, Any] = {"top_k": 2, "mmr_lambda": 0.3}
        repeated = await shelf.names("dog sleeps garden", **asked)
        assert "other" not in repeated
        chosen = await shelf.names("dog sleeps garden", strategy="mmr", **asked)
        assert len(chosen) == 2
        assert chosen[1] == "other"
        assert await shelf.names("elephants", strategy="mmr", **asked) == [] or topics is not None


async def test_a_search_finds_only_documents_whose_metadata_holds_what_is_asked(shared_database: str) -> None:
    async with open_shelf(shared_database) as shelf:
        await shelf.put("new", "The tariff is five.", metadata={"year": 2026, "tags": ["price", "public"]})
        await shelf.put("old", "The tariff is four.", metadata={"year": 2025})
        assert sorted(await shelf.names("tariff")) == ["new", "old"]
        assert await shelf.names("tariff", metadata={"year": 2025}) == ["old"]
        assert await shelf.names("tariff", metadata={"tags": ["public"]}) == ["new"]
        assert await shelf.names("tariff", metadata={"year": "2025'; DROP TABLE documents; --"}) == []
