"""Processes are killed between any two statements of what they write, and right before and after each commit.

Then a fresh process serves: each pause is held or over, nothing was announced that is not stored, what was stored is
told, no result that was accepted is lost, and the next turn's request is one that a strict provider takes.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from signal import SIGCONT, SIGKILL, SIGSTOP

import httpx
import pytest

from app.domain.ids import row_key
from tests.databases import rows
from tests.kill_points import COMMIT, DONE, At
from tests.live.acts import ACTS, Act, Scene
from tests.live.audit import settled
from tests.live.battle import OPEN, Attack, Ground, audit, break_off, stand
from tests.servers import Server
from tests.sse import check_whole

pytestmark = pytest.mark.slow

AT_ONCE = 40


async def points_of(server: Server, ground: Ground, act: Act) -> list[tuple[str, At]]:
    """Play the act undisturbed, and give all points of what it writes."""
    scene = Scene(server, ground.mock, f"dry-{act.slug}")
    await act.before(scene)
    known = len(ground.points.finished)
    told = await act.request(scene)
    assert told.is_accepted, told
    key = row_key("", scene.conversation).bytes
    mine = [transaction for transaction in ground.points.finished[known:] if key in transaction.values]
    sizes = {transaction.name: len(transaction.statements) for transaction in mine}
    return [(name, at) for name in act.attacked for at in (*range(sizes[name]), COMMIT, DONE)]


async def each_part(ground: Ground, *, every: bool) -> AsyncIterator[tuple[Server, list[Attack]]]:
    """Give attacks in parts, and for each part a process to be attacked."""
    server = await ground.attacked()
    found = [(act, point) for act in ACTS for point in await points_of(server, ground, act)]
    if not every:
        found = [(act, point) for act, point in found if point[1] in {COMMIT, DONE}]
    for begin in range(0, len(found), AT_ONCE):
        attacks = [
            Attack(act, name, at, Scene(server, ground.mock, f"{act.slug}-{name}-{at}"))
            for act, (name, at) in found[begin : begin + AT_ONCE]
        ]
        yield server, attacks
        if begin + AT_ONCE < len(found):
            server = await ground.attacked()


async def kill_and_audit(ground: Ground, server: Server, attacks: Sequence[Attack]) -> None:
    asking = await stand(ground.points, attacks)
    server.signal(SIGKILL)
    await break_off(asking, attacks, go=False)
    await server.kill()
    fresh = await ground.fresh()
    await audit(fresh, ground.database, attacks)
    await fresh.stop()


async def freeze_and_audit(ground: Ground, server: Server, attacks: Sequence[Attack]) -> None:
    other = await ground.fresh(OPENAI_API_KEY="sk-of-the-other")
    asking = await stand(ground.points, attacks)
    server.signal(SIGSTOP)
    async with asyncio.timeout(30):
        while await rows(ground.database, OPEN):  # noqa: ASYNC110 - the database ends what stands idle in a transaction
            await asyncio.sleep(0.1)
        while not await rows(ground.database, "SELECT 1 FROM replicas WHERE dead"):  # noqa: ASYNC110 - the other one judges
            await asyncio.sleep(0.1)
    await settled(ground.database)
    stored = await ground.written()
    server.signal(SIGCONT)
    await break_off(asking, attacks, go=True)
    async with asyncio.timeout(30):
        while "lease.lost" not in server.log:  # noqa: ASYNC110 - the process learns that it was given up
            await asyncio.sleep(0.02)
    assert await ground.written() == stored
    await audit(other, ground.database, attacks)
    await other.stop()
    await server.stop()


async def cut_and_audit(ground: Ground, server: Server, attacks: Sequence[Attack]) -> None:
    asking = await stand(ground.points, attacks)
    await break_off(asking, attacks, go=False)
    for attack in attacks:
        told = attack.told
        once = attack.transaction in {"partial", "end"}
        if once or (attack.at not in {COMMIT, DONE} and told.status == httpx.codes.SERVICE_UNAVAILABLE):
            # Whether a small write landed nobody knows, and what has not landed may be given up after some seconds:
            # the host is told to try again, and gets the answer then.
            assert told.status == httpx.codes.SERVICE_UNAVAILABLE, f"{attack}: {told}"
            attack.told = await attack.act.request(attack.scene)
            assert attack.told.is_accepted, f"{attack}: {attack.told}"
        else:
            assert told.is_accepted, f"{attack}: {told}"
            assert told.whole, f"{attack}: {told}"
            check_whole(told.frames)
            assert told.frames[-1].data["status"] in {"completed", "paused"}, f"{attack}: {told}"
    await audit(server, ground.database, attacks)
    await server.stop()


Then = Callable[[Ground, Server, Sequence[Attack]], Awaitable[None]]
WAYS = (kill_and_audit, cut_and_audit, freeze_and_audit)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("then", [*WAYS[:2], pytest.param(freeze_and_audit, marks=pytest.mark.slow)])
async def test_at_both_sides_of_each_commit(ground: Ground, then: Then) -> None:
    async for server, attacks in each_part(ground, every=False):
        await then(ground, server, attacks)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("then", WAYS)
async def test_between_any_two_statements(ground: Ground, then: Then) -> None:
    async for server, attacks in each_part(ground, every=True):
        await then(ground, server, attacks)
