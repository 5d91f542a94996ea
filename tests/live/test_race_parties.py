"""Two parties want the same pause on two processes: both are inside before either leaves, one wins, nothing is torn.

The first stands before its commit with its locks taken; the second has run into them. Then the first goes on, or its
connection is cut and its transaction with it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import pytest

from app.domain.ids import row_key
from tests.databases import rows
from tests.kill_points import COMMIT
from tests.live.acts import TWO_CALLS, Act, Scene, Told
from tests.live.audit import refused
from tests.live.battle import Attack, Ground, Two, audit

pytestmark = pytest.mark.slow

LOCKED = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
STATE = "SELECT state, end_reason FROM pending_external_tool_requests WHERE pause_id = $1"
TTL = 1.0


async def expire(scene: Scene) -> Told:
    """Wait until the pause is over: it expires by itself."""
    told = Told()
    async with asyncio.timeout(20):
        while True:
            found = await scene.server.client.get(f"/v1/streams/{scene.stream_id}")
            if found.json()["status"] not in {"paused", "running"}:
                return told
            await asyncio.sleep(0.05)


@dataclass(frozen=True, slots=True)
class Party:
    """Somebody who wants the pause, and the transaction in which it is taken."""

    name: str
    ask: Callable[[Scene], Coroutine[Any, Any, Told]]
    transaction: str
    reason: str = "continued"

    @property
    def asks(self) -> bool:
        """Tell whether a model is asked when this one gets what it wants."""
        return self.transaction != "end"

    @property
    def expires(self) -> bool:
        return self.ask is expire


RESULTS = Party("results", lambda scene: scene.pass_results(), "continue")
RESUME = Party("resume", lambda scene: scene.resume(), "continue", "resumed")
NEW_TURN = Party("turn", lambda scene: scene.say("Never mind"), "take", "new_turn")
CANCEL = Party("cancel", lambda scene: scene.cancel(), "end", "cancelled")
EXPIRY = Party("expiry", expire, "end", "expired")
PARTIES = (RESULTS, RESUME, NEW_TURN, CANCEL, EXPIRY)
NOBODY = Act("race", lambda scene: scene.pause(), lambda scene: scene.cancel(), ())


async def until_locked(database: str) -> None:
    """Wait until somebody waits for a lock."""
    async with asyncio.timeout(30):
        while not await rows(database, LOCKED):  # noqa: ASYNC110 - a state of the database
            await asyncio.sleep(0.01)


async def meet(ground: Ground, here: Scene, there: Scene, first: Party, second: Party, *, go: bool) -> list[Told]:
    """Let both in, then the first out; gives what both were told."""
    more: dict[str, Any] = {"pause_ttl_seconds": TTL, "on_expiry": "close"} if EXPIRY in {first, second} else {}
    await here.pause(**more)
    there.stream_id, there.pause_id, there.calls = here.stream_id, here.pause_id, here.calls
    hold = ground.points.hold(first.transaction, COMMIT, row_key("", here.conversation))
    one = asyncio.create_task(first.ask(here))
    await hold.reached()
    two = asyncio.create_task(second.ask(there))
    await until_locked(ground.database)
    (hold.go if go else hold.drop)()
    async with asyncio.timeout(30):
        return [await one, await two]


ALL = [(pair, go) for pair in [*permutations(PARTIES, 2), (RESULTS, RESULTS)] for go in (True, False)]
WITH_RESULTS = [(pair, go) for pair, go in ALL if RESULTS in pair and go]


@pytest.mark.parametrize("races", [WITH_RESULTS, pytest.param(ALL, marks=pytest.mark.slow)], ids=["results", "all"])
@pytest.mark.timeout(180)
async def test_of_two_who_want_a_pause_one_gets_it(two: Two, races: list[tuple[tuple[Party, Party], bool]]) -> None:
    ground, a, b = two
    attacks: list[Attack] = []
    for number, (pair, go) in enumerate(races):
        here, there = (
            Scene(server, ground.mock, f"{pair[0].name}-{pair[1].name}-{number}-of-{len(races)}") for server in (a, b)
        )
        calls_before = len(ground.mock.seen.requests)
        told = await meet(ground, here, there, *pair, go=go)
        try:
            await check_pair(ground, here, pair, told, go=go)
            asked = len(ground.mock.seen.requests) - calls_before - 1
            accepted = [said for party, said in zip(pair, told, strict=True) if party.asks and said.is_accepted]
            assert asked == len(accepted), f"{asked} model calls"
        except AssertionError as error:
            error.add_note(f"{here.conversation}, go: {go}, told: {told}")
            raise
        attacks.append(Attack(NOBODY, "", 0, here))
    await audit(b, ground.database, attacks)


async def check_pair(ground: Ground, scene: Scene, pair: tuple[Party, Party], told: list[Told], *, go: bool) -> None:
    """Check that exactly one of the two took the pause, and that later results learn which."""
    (state,) = await rows(ground.database, STATE, scene.pause_id)
    exclusive = [party for party, said in zip(pair, told, strict=True) if took(party, said)]
    if state["end_reason"] != "new_turn" and NEW_TURN in exclusive:
        # The pause was over and done with when its turn came: a turn like any other.
        exclusive.remove(NEW_TURN)
    winners = {party.reason for party in exclusive} or {party.reason for party in pair if party.expires}
    if go:
        assert exclusive[:1] == [pair[0]] or pair[0].expires, f"the first was inside and did not win: {exclusive}"
    assert len(winners) == 1, f"both took the pause: {winners}"
    assert state["state"] == "ended"
    reason = {"resumed": "continued"}.get(str(*winners), str(*winners))
    assert state["end_reason"] == reason
    problem = await refused(scene.server, scene.stream_id, *scene.results)
    assert problem["code"] == "TOOL_ERROR"
    assert problem["reason"] in {"ended", *winners}


def took(party: Party, told: Told) -> bool:
    """Tell whether the party was told that the pause is its own."""
    if party is CANCEL:
        return told.body.get("status") == "cancelled"
    return not party.expires and told.is_accepted


async def at_two(two: Two, name: str) -> tuple[Ground, Scene, Scene]:
    """Give one held pause of two calls, seen from two processes."""
    ground, a, b = two
    here, there = (Scene(server, ground.mock, name) for server in (a, b))
    ground.mock.script(TWO_CALLS)
    await here.pause()
    there.stream_id, there.pause_id, there.calls = here.stream_id, here.pause_id, here.calls
    return ground, here, there


async def both_inside(
    ground: Ground, scene: Scene, transaction: str, first: Coroutine[Any, Any, Told], second: Coroutine[Any, Any, Told]
) -> tuple[Told, Told]:
    """Hold the first before its commit until the second has run into its lock."""
    hold = ground.points.hold(transaction, COMMIT, row_key("", scene.conversation))
    one = asyncio.create_task(first)
    await hold.reached()
    two = asyncio.create_task(second)
    await until_locked(ground.database)
    hold.go()
    async with asyncio.timeout(20):
        return await one, await two


async def test_two_partial_results_at_once_are_both_kept_and_the_second_goes_on(two: Two, name: str) -> None:
    ground, here, there = await at_two(two, name)
    call_a, call_b = here.results
    first, second = await both_inside(
        ground, here, "partial", here.pass_results([call_b], partial=True), there.pass_results([call_a], partial=True)
    )
    assert first.body == {"pause_id": here.pause_id, "received": ["call_b"], "missing": ["call_a"]}
    assert second.frames[-1].data["status"] == "completed"
    here.accepted = ("call_a", "call_b")
    await audit(there.server, ground.database, [Attack(NOBODY, "", 0, here)])


async def test_two_partial_results_at_once_for_one_call_are_taken_once_and_a_different_one_is_refused(
    two: Two,
    name: str,
) -> None:
    ground, here, there = await at_two(two, name)
    _, call_b = here.results
    other = {**call_b, "output": "something else"}
    asked = len(ground.mock.seen.requests)
    first, second = await both_inside(
        ground, here, "partial", here.pass_results([call_b], partial=True), there.pass_results([other], partial=True)
    )
    assert first.is_accepted
    assert (second.status, second.body["code"]) == (409, "SYS_INVALID_STATE")
    first, second = await asyncio.gather(
        here.pass_results([call_b], partial=True), there.pass_results([call_b], partial=True)
    )
    assert first.body == second.body == {"pause_id": here.pause_id, "received": ["call_b"], "missing": ["call_a"]}
    assert len(ground.mock.seen.requests) == asked
    here.accepted = ("call_b",)
    await audit(there.server, ground.database, [Attack(NOBODY, "", 0, here)])


@pytest.mark.parametrize("whole_first", [True, False])
async def test_a_partial_result_against_whole_results_is_refused_or_counts(
    two: Two, name: str, *, whole_first: bool
) -> None:
    ground, here, there = await at_two(two, name)
    call_a, call_b = here.results
    if whole_first:
        whole, partial = await both_inside(
            ground, here, "continue", here.pass_results(), there.pass_results([call_b], partial=True)
        )
        assert (partial.status, partial.body["code"]) == (409, "SYS_INVALID_STATE")
    else:
        partial, whole = await both_inside(
            ground, here, "partial", here.pass_results([call_b], partial=True), there.pass_results([call_a])
        )
        assert partial.is_accepted
        here.accepted = ("call_b",)
    assert whole.frames[-1].data["status"] == "completed"
    told = ground.mock.seen.requests[-1]["body"]["messages"]
    assert [message["content"] for message in told if message["role"] == "tool"] == [here.output, here.output]
    await audit(there.server, ground.database, [Attack(NOBODY, "", 0, here)])


async def test_of_twenty_posts_of_the_same_results_on_two_processes_one_goes_on(two: Two, name: str) -> None:
    ground, a, b = two
    scene = Scene(a, ground.mock, name)
    await scene.pause()
    asked = len(ground.mock.seen.requests)
    others = [replace(scene, server=server) for server in (a, b)] * 10
    told = await asyncio.gather(*(other.pass_results() for other in others))
    assert sorted(said.status or 0 for said in told) == [200] + [409] * 19
    assert {said.body["code"] for said in told if not said.is_accepted} <= {"SYS_INVALID_STATE", "TOOL_ERROR"}
    assert len(ground.mock.seen.requests) == asked + 1
    await audit(b, ground.database, [Attack(NOBODY, "", 0, scene)])
