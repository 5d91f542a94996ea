"""Links between memories: how they grow, what spreads over them, and what that does to a recall."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.memory.links import DEPTH, HEBB, MOST_LINKS, activation, linked

NAMES = st.sampled_from("abcdef")


def test_a_link_grows_each_time_up_to_one_and_the_weakest_go() -> None:
    links: Mapping[str, float] = {}
    for _ in range(3):
        links = linked(links, ["b"])
    assert links == {"b": pytest.approx(3 * HEBB)}
    for _ in range(20):
        links = linked(links, ["b"])
    assert links == {"b": 1.0}
    many = linked({"weak": 0.05, "b": 0.9}, [f"m{number:02}" for number in range(MOST_LINKS)])
    assert len(many) == MOST_LINKS
    assert "weak" not in many
    assert many["b"] == 0.9


def test_what_spreads_halves_with_each_step_and_stops_when_it_is_faint_or_far() -> None:
    chain = {"a": {"b": 1.0}, "b": {"c": 1.0}, "c": {"d": 1.0}, "d": {"e": 1.0}, "e": {}}
    assert activation(["a"], chain) == {"b": 0.5, "c": 0.25, "d": 0.125}
    assert activation(["e"], chain)["d"] == 0.5, "a link leads both ways"
    assert activation(["a"], {"a": {"b": 0.1}, "b": {}}) == {}
    assert activation(["a"], {"a": {"b": 0.2}, "b": {}}) == {"b": pytest.approx(0.1)}
    assert activation(["a"], {"a": {"gone": 1.0}}) == {}
    assert activation(["a", "b"], {"a": {"b": 1.0}, "b": {}}) == {"a": 0.5, "b": 0.5}
    assert DEPTH == 3


@given(
    st.lists(NAMES, max_size=3, unique=True),
    st.dictionaries(NAMES, st.dictionaries(NAMES, st.floats(0, 1), max_size=4), max_size=6),
)
def test_nothing_gets_more_than_one_step_gives(seeds: list[str], links: dict[str, dict[str, float]]) -> None:
    reached = activation(seeds, links)
    assert set(reached) <= set(links) | set(seeds)
    assert all(0.1 - 1e-6 <= held <= 0.5 for held in reached.values())
