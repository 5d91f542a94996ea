"""The formulas of memory: what fades, what lasts longer, what is in whose way, and what fits best."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.memory.formulas import Vitality, after_newer, encoded, held_back, overlap, score

NOW = datetime(2026, 11, 30, tzinfo=UTC)
SHARE = st.floats(0, 1)
SIGNED = st.floats(-1, 1)


def plain(*, explicit: bool = False, novel: bool = True, **felt: float) -> Vitality:
    return encoded(NOW, **{"valence": 0.0, "arousal": 0.0, "sentiment": 0.0, **felt}, novel=novel, explicit=explicit)


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
        points = score(similarity, memory, later, created_at=NOW, valence=valence, mood=sentiment, confidence=0.8)
        assert 0 <= points <= 0.9
        memory = memory.told(later)
