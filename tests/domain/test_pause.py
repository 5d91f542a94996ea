"""The life of a pause: whatever is not in the table is refused, and an ended pause never changes again."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import InvalidStateError
from app.domain.pause import TRANSITIONS, PauseEvent, PauseState, advance
from tests.requirements import requirement

PAIRS = list(product(PauseState, PauseEvent))


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_a_pair_is_in_the_table_or_an_error(state: PauseState, event: PauseEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert advance(state, event) is TRANSITIONS[state, event]
        return
    with pytest.raises(InvalidStateError) as refused:
        advance(state, event)
    assert refused.value.code == "SYS_INVALID_STATE"
    assert state.value in refused.value.message


@requirement("R73")
@given(st.lists(st.sampled_from(list(PauseEvent)), max_size=8))
def test_whatever_comes_a_pause_is_taken_at_most_once_and_its_end_is_final(events: list[PauseEvent]) -> None:
    state, taken, ended = PauseState.HELD, 0, False
    for event in events:
        try:
            after = advance(state, event)
        except InvalidStateError:
            continue
        assert not ended
        taken += (state, after) == (PauseState.HELD, PauseState.RECORDED)
        ended = after is PauseState.ENDED
        state = after
    assert taken <= 1


def test_only_a_held_pause_waits_for_its_host() -> None:
    takers = {state for (state, event) in TRANSITIONS if event in {PauseEvent.RESULTS, PauseEvent.RESUMED}}
    assert takers == {PauseState.HELD}
    assert {state for state, _ in TRANSITIONS} == {PauseState.HELD, PauseState.RECORDED}
