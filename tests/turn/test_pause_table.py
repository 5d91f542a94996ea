"""The table of a pause's life: what may happen, what may not, and that the drawing and the rows keep to it."""

from collections.abc import Callable
from itertools import product

import pytest

from app.domain.errors import InvalidStateError
from app.domain.ids import row_key
from app.domain.pause import TRANSITIONS, PauseEvent, PauseState, advance
from app.store import pauses
from app.store.database import Database
from app.store.pauses import PauseRecord
from tests.pause_diagram import DOCUMENT, diagram, drawn
from tests.stage import CHAT, Stage
from tests.turn.pausing import paused, tables

PAIRS = list(product(PauseState, PauseEvent))
LEGAL = [pair for pair in PAIRS if pair in TRANSITIONS]
ILLEGAL = [pair for pair in PAIRS if pair not in TRANSITIONS]
FORCE = "UPDATE pending_external_tool_requests SET state = $1"


def test_the_table_is_what_a_pause_may_do() -> None:
    held, recorded, ended = PauseState.HELD, PauseState.RECORDED, PauseState.ENDED
    assert {
        (held, PauseEvent.RESULTS): recorded,
        (held, PauseEvent.RESUMED): recorded,
        (held, PauseEvent.NEW_TURN): ended,
        (held, PauseEvent.EXPIRED): ended,
        (held, PauseEvent.CANCELLED): ended,
        (recorded, PauseEvent.SETTLED): ended,
        (recorded, PauseEvent.INTERRUPTED): ended,
    } == TRANSITIONS


@pytest.mark.parametrize(("state", "event"), LEGAL)
def test_a_legal_event_gives_the_next_state(state: PauseState, event: PauseEvent) -> None:
    assert advance(state, event) is TRANSITIONS[state, event]


@pytest.mark.parametrize(("state", "event"), ILLEGAL)
def test_any_other_event_is_an_error_that_names_both(state: PauseState, event: PauseEvent) -> None:
    with pytest.raises(InvalidStateError, match=rf"{state.value}.*{event.value}"):
        advance(state, event)


def test_what_has_ended_stays_so() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] is PauseState.ENDED]


Seen = Callable[[PauseState], PauseRecord]


async def forced(stage: Stage, state: PauseState) -> tuple[Database, PauseRecord]:
    """Store a pause in a state, whatever led to it, and give it as it is stored."""
    pause = await paused(stage, "c1")
    store = Database(stage.database, pool_size=2)
    async with store.transaction() as connection:
        await connection.driver.execute(FORCE, state.value)
        found = await pauses.find(connection, row_key("", CHAT), pause.pause_id)
    assert found is not None
    assert found.state is state
    return store, found


async def test_a_stored_pause_moves_by_the_table_alone(stage: Stage) -> None:
    store, first = await forced(stage, PauseState.HELD)
    for state, event in PAIRS:
        async with store.transaction() as connection:
            await connection.driver.execute(FORCE, state.value)
            seen = await pauses.find(connection, first.conversation, first.pause_id)
            assert seen is not None
        before = await tables(stage.database)
        if (state, event) in TRANSITIONS:
            async with store.transaction() as connection:
                assert await pauses.move(connection, seen, event)
                moved = await pauses.find(connection, first.conversation, first.pause_id)
            assert moved is not None
            assert moved.state is TRANSITIONS[state, event]
            assert moved.state is not PauseState.ENDED or moved.snapshot is None
        else:
            with pytest.raises(InvalidStateError):
                async with store.transaction() as connection:
                    await pauses.move(connection, seen, event)
            assert await tables(stage.database) == before
    await store.close()


@pytest.mark.parametrize(("state", "event"), LEGAL)
async def test_a_move_from_a_state_that_is_no_longer_stored_changes_nothing(
    stage: Stage, state: PauseState, event: PauseEvent
) -> None:
    store, seen = await forced(stage, state)
    for other in set(PauseState) - {state}:
        async with store.transaction() as connection:
            await connection.driver.execute(FORCE, other.value)
        before = await tables(stage.database)
        async with store.transaction() as connection:
            assert not await pauses.move(connection, seen, event)
        assert await tables(stage.database) == before
    await store.close()


def test_the_drawing_in_contributing_is_the_table() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert drawn(document) == document, "run: python -m tests.pause_diagram"


def test_the_drawing_shows_every_pair_of_the_table() -> None:
    lines = diagram().splitlines()
    for (before, event), after in TRANSITIONS.items():
        (arrow,) = [line for line in lines if line.strip().startswith(f"{before.value} --> {after.value}:")]
        assert event.value in arrow.partition(": ")[2].split(", ")
    fewer = {pair: after for pair, after in TRANSITIONS.items() if pair != (PauseState.HELD, PauseEvent.EXPIRED)}
    assert diagram(fewer) != diagram()
