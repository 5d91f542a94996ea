"""The machine notices: faults are planted, one at a time, each of a kind that a host would suffer from."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from app.domain.messages import Message
from app.domain.pause import PauseEvent
from app.store import messages, pauses
from app.turn.pauses import keeper
from app.turn.pauses.history import answered
from tests.databases import Databases
from tests.pause_machine.test_pause_machine import drive

pytestmark = pytest.mark.slow

ONE_HELD = "DROP INDEX uq_pending_external_tool_requests_held"
Patch = Callable[[pytest.MonkeyPatch], None]


async def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing of what should be done."""


def results_leave_the_pause_held(patch: pytest.MonkeyPatch) -> None:
    """Results are taken, and can be taken again."""
    move = pauses.move

    async def moved(connection: Any, pause: Any, event: PauseEvent, **more: Any) -> bool:
        return event is PauseEvent.RESULTS or await move(connection, pause, event, **more)

    patch.setattr(pauses, "move", moved)


def a_result_is_stored_twice(patch: pytest.MonkeyPatch) -> None:
    answers = keeper.answers

    def doubled(pause: Any, results: Any, **more: Any) -> Any:
        return [*answers(pause, results, **more), *answers(pause, results, **more)[:1]]

    patch.setattr(keeper, "answers", doubled)


def a_new_turn_leaves_calls_unanswered(patch: pytest.MonkeyPatch) -> None:
    end = keeper.end

    async def ended(*given: Any, **more: Any) -> Any:
        return [] if (await end(*given, **more)) and more["event"] is PauseEvent.NEW_TURN else ()

    patch.setattr(keeper, "end", ended)


def a_new_turn_leaves_the_pause_held(patch: pytest.MonkeyPatch) -> None:
    """With the index gone that forbids it, a second pause is held beside the first."""
    move = pauses.move

    async def moved(connection: Any, pause: Any, event: PauseEvent, **more: Any) -> bool:
        return event is PauseEvent.NEW_TURN or await move(connection, pause, event, **more)

    patch.setattr(pauses, "move", moved)


def partial_results_are_lost_when_the_pause_ends(patch: pytest.MonkeyPatch) -> None:
    answers = keeper.answers

    def without(pause: Any, results: Any, *, to_run: bool = False) -> Any:
        return answers(pause, results if to_run else (), to_run=to_run)

    patch.setattr(keeper, "answers", without)


def a_pause_that_is_over_leaves_its_stream_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keeper, "close_stream", _nothing)


def a_turn_that_was_rolled_back_is_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(messages, "leave_out", _nothing)


def one_result_is_not_told(patch: pytest.MonkeyPatch) -> None:
    def without_the_last(*given: Any) -> Sequence[Message]:
        return answered(*given)[:-1]

    patch.setattr("app.turn.orchestrator.continuation.answered", without_the_last)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and what must be taken from the database so that it can show."""

    plant: Patch
    sabotage: str | None = None


FAULTS = (
    Fault(results_leave_the_pause_held),
    Fault(a_result_is_stored_twice),
    Fault(a_new_turn_leaves_calls_unanswered),
    Fault(a_new_turn_leaves_the_pause_held, ONE_HELD),
    Fault(partial_results_are_lost_when_the_pause_ends),
    Fault(a_pause_that_is_over_leaves_its_stream_open),
    Fault(a_turn_that_was_rolled_back_is_told),
    Fault(one_result_is_not_told),
)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Give the error and all that it groups."""
    yield error
    for one in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        yield from causes(one)


def notices(databases: Databases, sabotage: str | None) -> bool:
    """Run the machine and tell whether one of its checks failed."""
    try:
        drive(databases, examples=20, steps=20, derandomize=True, sabotage=sabotage)
    except Exception as error:
        if any(isinstance(one, AssertionError) for one in causes(error)):
            return True
        raise
    return False


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.plant.__name__)
def test_the_machine_notices_that(databases: Databases, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    fault.plant(monkeypatch)
    assert notices(databases, fault.sabotage)
