"""What a turn holds while it runs, and what it leaves behind: a thousand of them run in one process at a time."""

import gc
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from app.domain.errors import ProviderError
from app.domain.turn import TurnInput
from app.guardrails.registry import Guards
from app.providers.scripted import Hold, ScriptedProvider, call
from app.turn.facade.guarded_stream import MOST_APART
from app.turn.preparation.draft import PhaseServices, PreparedTurn, TurnDraft
from tests.guardrails.acting import OutputOnly, blocks
from tests.stage import WEATHER, result, running_stage, turn_input

PREPARED_FROM = (TurnInput, TurnDraft, PreparedTurn, PhaseServices)


def made(kinds: tuple[type, ...]) -> Counter[str]:
    """Count the objects of these kinds that there are."""
    gc.collect()
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, kinds))


@contextmanager
def uncollected() -> Iterator[list[str]]:
    """Give what of ours is found at the block's end that only the collector can free."""
    found: list[str] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kinds = [type(each) for each in gc.garbage]
        found += [f"{kind.__module__}.{kind.__name__}" for kind in kinds if str(kind.__module__).startswith("app.")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def test_a_turn_that_runs_holds_nothing_of_what_it_was_prepared_from(database: str) -> None:
    hold = Hold()
    async with running_stage(database, ScriptedProvider([["Hello", hold, "."]])) as stage:
        before = made(PREPARED_FROM)
        started = await stage.runtime.start_turn(turn_input("Hi."))
        await hold.reached.wait()
        assert made(PREPARED_FROM) == before
        hold.release()
        async for _ in await stage.runtime.open_operation(started):
            pass
        assert await stage.said() == [("user", "Hi."), ("assistant", "Hello.")]


async def test_turns_leave_nothing_to_the_collector_however_they_end(database: str) -> None:
    refused = ProviderError("The key is wrong.", reason="auth", provider="scripted")
    asked = [call("get_weather", {"city": "Rome"}, id="c1")]
    calculates = [call("calculator", {"expression": "1 + 1"}, id="c2")]
    provider = ScriptedProvider([["Welcome."], ["Hello", "."], asked, ["Warm."], calculates, ["Two."], [refused]])
    async with running_stage(database, provider) as stage:
        await stage.play("Hi.")
        with uncollected() as left:
            await stage.play("How are you?")
            paused = await stage.play("Weather?", tools=[WEATHER])
            await stage.pass_results(str(paused[0]["stream_id"]), result("c1"))
            await stage.play("One and one?")
            await stage.play("And now?")
            await stage.runtime.drain()
            del paused
        assert Counter(left) == Counter()


class Word(str):
    """A text that can be looked after."""

    __slots__ = ("__weakref__",)


class Words(Sequence[Any]):
    """What a model says word by word, then a hold; nobody else holds the words."""

    def __init__(self, number: int) -> None:
        self.hold = Hold()
        self.told: list[weakref.ref[Word]] = []
        self._number = number

    def __len__(self) -> int:
        return self._number + 1

    def __getitem__(self, place: Any) -> Any:
        if place > self._number:
            raise IndexError
        if place == self._number:
            return self.hold
        word = Word(f"word {place} ")
        self.told.append(weakref.ref(word))
        return word


@pytest.mark.parametrize(("mode", "most"), [("plain", 3), ("stream", 3), ("sentence", 3), ("hold", MOST_APART + 4)])
async def test_a_turn_that_runs_holds_no_piece_of_what_its_model_said(database: str, mode: Any, most: int) -> None:
    guards = Guards() if mode == "plain" else Guards([OutputOnly(blocks("swordfish"))], mode=mode)
    words = Words(200)
    async with running_stage(database, ScriptedProvider([lambda _: words]), guards=guards) as stage:
        started = await stage.runtime.start_turn(turn_input("Hi."))
        await words.hold.reached.wait()
        alive = [word() for word in words.told]
        assert len(alive) == 200
        assert sum(word is not None for word in alive) <= most  # the newest, which is passed on
        words.hold.release()
        async for _ in await stage.runtime.open_operation(started):
            pass
        assert await stage.said() == [("user", "Hi."), ("assistant", "".join(f"word {n} " for n in range(200)))]
