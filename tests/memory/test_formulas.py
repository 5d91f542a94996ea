"""The formulas of memory: what fades, what lasts longer, what is in whose way, and what fits best."""

from collections.abc import Mapping
from dataclasses import astuple
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.memory.formulas import Moment, Vitality, Weights, after_newer, encoded, held_back, overlap, score

NOW = datetime(2026, 11, 30, tzinfo=UTC)
SHARE = st.floats(0, 1)
SIGNED = st.floats(-1, 1)
TRAITS = {"openness", "conscientiousness", "emotionality"}


def plain(traits: Mapping[str, float] = MappingProxyType({}), *, novel: bool = True, **about: Any) -> Vitality:
    return encoded(NOW, Moment(novel=novel, **about), Weights.of(traits))[0]


def test_a_memory_fades_to_a_third_in_the_time_of_its_stability() -> None:
    memory = Vitality(0.9, 3600, 0, NOW)
    assert memory.at(NOW) == 0.9
    assert memory.at(NOW + timedelta(hours=1)) == pytest.approx(0.9 / 2.718281828)
    assert memory.at(NOW - timedelta(hours=1)) == 0.9


def test_telling_it_makes_it_stronger_and_the_longer_lasting_the_more_it_had_faded() -> None:
    fresh = Vitality(0.5, 3600, 0, NOW).told(NOW)
    late = Vitality(0.5, 3600, 0, NOW).told(NOW + timedelta(hours=3))
    assert fresh.strength == pytest.approx(0.6)
    assert fresh.recalled == 1
    assert fresh.stability == pytest.approx(3600 * (1.5 + 2 * 0.5))
    assert late.stability > fresh.stability
    assert Vitality(0.5, 3600, 0, NOW, recalled=10).told(NOW).stability < fresh.stability
    assert Vitality(0.5, 3600, 1, NOW).told(NOW).stability == pytest.approx(fresh.stability * 1.3)


def test_what_is_new_moves_or_was_asked_for_is_encoded_better() -> None:
    usual = plain()
    assert usual.strength == pytest.approx(0.5 * (0.5 + 0.65 * 0.15))
    assert usual.stability == pytest.approx(3600 * (1 + 6 * usual.strength))
    assert plain(novel=False).strength < usual.strength
    assert plain(valence=0.5, sentiment=0.9).strength > usual.strength
    assert plain(arousal=1.0).strength < usual.strength
    asked = plain(explicit=True)
    assert (asked.strength, asked.stability) == (1.0, 3600 * 7 * 5)


def test_traits_weigh_what_is_new_how_things_are_done_and_what_is_felt() -> None:
    assert Weights.of({}) == Weights.of({"openness": 0.5, "conscientiousness": 0.5, "emotionality": 0.5, "humor": 1.0})
    all_of_it, none_of_it = Weights.of(dict.fromkeys(TRAITS, 1.0)), Weights.of(dict.fromkeys(TRAITS, 0.0))
    assert astuple(all_of_it) == pytest.approx((1.0, 1.0, 1.0))
    assert astuple(none_of_it) == pytest.approx((0.3, 0.3, 0.2))
    assert Weights.of(dict.fromkeys(TRAITS, 7.0)) == all_of_it
    cases: list[tuple[str, dict[str, Any]]] = [
        ("openness", {}),
        ("conscientiousness", {"novel": False, "procedure": True}),
        ("emotionality", {"novel": False, "sentiment": 0.4}),
    ]
    for trait, about in cases:
        assert plain({trait: 1.0}, **about).strength > plain({trait: 0.0}, **about).strength
        others = dict.fromkeys(TRAITS - {trait}, 1.0)
        if trait != "emotionality":
            assert plain(others, **about).strength == plain({}, **about).strength


def test_importance_is_of_strength_and_attention_and_whole_for_what_was_asked_for() -> None:
    usual, importance = encoded(NOW, Moment(), Weights())
    assert importance == pytest.approx(0.6 * usual.strength + 0.4 * 0.5)
    assert encoded(NOW, Moment(explicit=True), Weights())[1] == 1.0


def test_what_was_told_in_vain_fades_sooner() -> None:
    vain = Vitality(0.8, 3600, 0, NOW, 3).unused()
    assert (vain.strength, vain.stability) == pytest.approx((0.72, 1800))
    assert (vain.accessed_at, vain.recalled) == (NOW, 3)
    assert Vitality(0.8, 70, 0, NOW).unused().stability == 60


def test_a_moment_that_overwhelms_stays() -> None:
    shock = plain(sentiment=-1.0, valence=-1.0, arousal=0.9)
    assert shock.intensity > 0.8
    assert shock.stability == pytest.approx(3600 * (1 + 6 * shock.strength) * 5)


def test_memories_that_are_alike_are_in_each_others_way() -> None:
    assert [overlap(similarity) for similarity in (0.2, 0.7)] == [0.0, 0.0]
    assert overlap(1.0) == pytest.approx(1.0)
    assert after_newer(0.8, 1.0) == pytest.approx(0.8 * 0.85)
    assert after_newer(0.8, 0.5) == 0.8
    assert held_back([(1.0, 0.5), (0.85, 1.0)]) == pytest.approx(0.05 + 0.05)
    assert held_back([(1.0, 1.0)] * 9) == 0.3


def test_a_score_weighs_fit_strength_feeling_recency_and_trust() -> None:
    alive = Vitality(1.0, 3600, 0, NOW)
    best = score(1.0, alive, NOW, created_at=NOW, valence=1.0, mood=1.0, confidence=1.0)
    assert best == pytest.approx(0.9)
    assert score(
        1.0, alive, NOW, created_at=NOW, valence=1.0, mood=1.0, confidence=1.0, activation=1.0
    ) == pytest.approx(1.0)
    faded = score(1.0, alive, NOW + timedelta(days=9), created_at=NOW, valence=1.0, mood=1.0, confidence=1.0)
    assert faded < best - 0.25
    assert score(0.0, alive, NOW, created_at=NOW, valence=1.0, mood=1.0, confidence=1.0) == pytest.approx(0.55)


@given(SIGNED, SIGNED, SIGNED, st.integers(0, 10**9), SHARE)
def test_nothing_leaves_its_bounds(
    valence: float, arousal: float, sentiment: float, seconds: int, similarity: float
) -> None:
    memory = plain(valence=valence, arousal=arousal, sentiment=sentiment, novel=similarity < 0.5)
    later = NOW + timedelta(seconds=seconds)
    for _ in range(3):
        assert 0 <= memory.at(later) <= memory.strength <= 1
        assert memory.stability > 0
        points = score(
            similarity, memory, later,
            created_at=NOW, valence=valence, mood=sentiment, confidence=0.8, activation=similarity,
        )  # fmt: skip
        assert 0 <= points <= 1
        memory = memory.told(later)
