"""What a runtime keeps of its turns once they have ended: nothing, however they did."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

from app.domain.errors import AppError, ProviderError
from app.domain.views import Started
from app.providers.scripted import ScriptedProvider
from app.store.pool import Pool
from app.streaming.outlet import CutError
from tests.stage import ADA, WEATHER, Stage, result, running_stage, turn_input
from tests.turn.pausing import by_results, by_resume, held, meanwhile, paused, speaking, until

HOLDERS = (dict, list, set, frozenset, tuple)
OWN_CONCERNS = (Pool, ScriptedProvider)
"""Connections are kept on purpose, and so are the requests that a test looks at."""


def parts(thing: object) -> Iterator[tuple[str, Any]]:
    """Give the attributes of an object of ours, those in slots too."""
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(thing, name):
                yield name, getattr(thing, name)
    yield from getattr(thing, "__dict__", {}).items()


def kept(runtime: object) -> Counter[str]:
    """Count what every collection holds that the runtime can get at, by the way to it."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    ahead: list[tuple[str, Any]] = [("runtime", runtime)]
    while ahead:
        way, thing = ahead.pop()
        thing = getattr(thing, "__self__", thing)  # of a method, the object it is of
        if id(thing) in seen or isinstance(thing, OWN_CONCERNS):
            continue
        seen.add(id(thing))
        if isinstance(thing, HOLDERS):
            found[way] += len(thing)
            inside = thing.values() if isinstance(thing, dict) else thing
            ahead += [(f"{way}[]", each) for each in inside]
        elif type(thing).__module__.startswith("app."):
            ahead += [(f"{way}.{name}", each) for name, each in parts(thing)]
    return found


async def runs(stage: Stage, conversation: str) -> Started:
    """Start a turn whose model never ends, and wait until it has begun to speak."""
    return (await speaking(stage, conversation=conversation))[0]


async def read(stage: Stage, started: Started) -> None:
    """Read to the end, if there is one: an erased stream is cut."""
    try:
        async for _ in await stage.runtime.open_operation(started):
            pass
    except CutError:
        return


async def ends_in_every_way(stage: Stage, name: str) -> None:
    """Run turns that end in all the ways there are, each in a conversation of its own."""
    stage.provider.add("Hello.", [ProviderError("No.", reason="invalid_request", provider="scripted")])
    for way in ("completes", "fails"):
        await stage.play("Hi.", conversation=f"{name}-{way.replace(' ', '-')}")
    for way, answer in (("continues", by_results), ("resumes", by_resume)):
        await paused(stage, "c1", conversation=f"{name}-{way.replace(' ', '-')}")
        stage.provider.add("Mild.")
        await answer(stage, await held(stage, f"{name}-{way.replace(' ', '-')}"), result("c1"))
    for way in ("is-cancelled", "is-ended-by-a-turn"):
        pause = await paused(stage, "c1", conversation=f"{name}-{way.replace(' ', '-')}")
        if way == "is-cancelled":
            await stage.runtime.cancel(ADA, pause.stream_id)
        else:
            stage.provider.add("Never mind.")
            await stage.play("Or not.", conversation=f"{name}-{way.replace(' ', '-')}", tools=[WEATHER])

    running = await runs(stage, f"{name}-waited-for")
    waits = asyncio.Event()
    queued = turn_input("And?", conversation=f"{name}-waited-for", on_busy="wait")
    waiting = asyncio.create_task(stage.runtime.start_turn(queued, waits.set))
    await asyncio.wait_for(waits.wait(), 30)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await stage.runtime.cancel(ADA, running.stream_id)
    await read(stage, running)

    running = await runs(stage, f"{name}-interrupted")
    stage.provider.add("Stop.")
    await stage.play("Stop!", conversation=f"{name}-interrupted", on_busy="interrupt")
    await read(stage, running)

    running = await runs(stage, f"{name}-erased")
    async with meanwhile(read(stage, running)):
        await stage.runtime.delete_conversation(ADA, f"{name}-erased")

    running = await runs(stage, f"{name}-refuses")
    try:
        await stage.runtime.start_turn(turn_input("Me too.", conversation=f"{name}-refuses"))
    except AppError:
        await stage.runtime.cancel(ADA, running.stream_id)
    await read(stage, running)

    stage.provider.add("Once.")
    keyed = turn_input("Hi.", conversation=f"{name}-keyed", idempotency_key=name)
    for started in await asyncio.gather(*(stage.runtime.start_turn(keyed) for _ in range(3))):
        await read(stage, started)


async def test_when_all_turns_have_ended_nothing_of_them_is_kept(database: str) -> None:
    async with running_stage(database) as stage:
        await ends_in_every_way(stage, "first")

        async def rests() -> Counter[str] | None:
            return None if stage.runtime._services.rings.all() else kept(stage.runtime)

        before = await until(rests)
        running = await runs(stage, "last")
        assert kept(stage.runtime) != before
        await stage.runtime.cancel(ADA, running.stream_id)
        for number in range(2):
            await ends_in_every_way(stage, str(number))

        async def as_before() -> bool:
            return kept(stage.runtime) == before

        await until(as_before)
