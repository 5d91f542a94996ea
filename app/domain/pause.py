"""The life of a pause, as data.

(state, event) → state is the whole truth: nothing else may change a stored pause, and a pair that is not in the table
is an error. *Held* waits for its host. *Recorded* is between a continuation's first and second transaction: its
results are stored and the model has not finished. *Ended* never changes again.
"""

from enum import StrEnum
from typing import Final

from app.domain.errors import InvalidStateError


class PauseState(StrEnum):
    """What is stored of a pause."""

    HELD = "held"
    RECORDED = "recorded"
    ENDED = "ended"


class PauseEvent(StrEnum):
    """What can happen to a pause."""

    RESULTS = "results"
    RESUMED = "resumed"
    NEW_TURN = "new_turn"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    SETTLED = "settled"
    INTERRUPTED = "interrupted"


TRANSITIONS: Final[dict[tuple[PauseState, PauseEvent], PauseState]] = {
    (PauseState.HELD, PauseEvent.RESULTS): PauseState.RECORDED,
    (PauseState.HELD, PauseEvent.RESUMED): PauseState.RECORDED,
    (PauseState.HELD, PauseEvent.NEW_TURN): PauseState.ENDED,
    (PauseState.HELD, PauseEvent.EXPIRED): PauseState.ENDED,
    (PauseState.HELD, PauseEvent.CANCELLED): PauseState.ENDED,
    (PauseState.RECORDED, PauseEvent.SETTLED): PauseState.ENDED,
    (PauseState.RECORDED, PauseEvent.INTERRUPTED): PauseState.ENDED,
}


def advance(state: PauseState, event: PauseEvent) -> PauseState:
    """Give the state after the event; InvalidStateError when the pause can't take it."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        message = f"A pause that is {state.value} can't take the event {event.value}."
        raise InvalidStateError(message) from None
