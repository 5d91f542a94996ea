"""Patience: one timer for many waits, which ends the one that is late and no other."""

import asyncio
from contextlib import closing

import pytest

from app.domain.patience import Patience


async def forever() -> None:
    """Wait for what never comes."""
    await asyncio.get_running_loop().create_future()


async def test_a_wait_past_its_time_ends_and_the_next_one_does_not() -> None:
    now = asyncio.get_running_loop().time
    with closing(Patience()) as patience:
        for _ in range(2):
            with pytest.raises(TimeoutError), patience.until(now()):
                await forever()
            with patience.until(now() + 60):
                await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_wait_that_began_in_time_is_not_ended_by_the_time_of_an_earlier_one() -> None:
    loop = asyncio.get_running_loop()
    first, later = loop.time() + 0.01, asyncio.Event()
    loop.call_at(first + 0.01, later.set)  # behind the timer that the first wait leaves armed
    with closing(Patience()) as patience:
        with patience.until(first):
            await asyncio.sleep(0)
        with patience.until(loop.time() + 60):
            await later.wait()
        with pytest.raises(TimeoutError), patience.until(loop.time() + 0.01):
            await forever()


async def test_a_wait_with_less_time_than_those_before_it_ends_at_its_own() -> None:
    now = asyncio.get_running_loop().time
    with closing(Patience()) as patience:
        with patience.until(now() + 3600):
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError), patience.until(now() + 0.01):
            await forever()


async def test_a_cancel_from_outside_stays_one() -> None:
    async def wait() -> None:
        with closing(Patience()) as patience, patience.until(asyncio.get_running_loop().time() + 60):
            await forever()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_what_fails_inside_a_wait_comes_through() -> None:
    with pytest.raises(KeyError), closing(Patience()) as patience, patience.until(asyncio.get_running_loop().time()):
        raise KeyError


async def test_a_wait_without_an_end_arms_nothing() -> None:
    with closing(Patience()) as patience, patience.until(float("inf")):
        await asyncio.sleep(0)
