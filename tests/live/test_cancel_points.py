"""Acts on a conversation, some with a round of three calls and one answered: cancelled, or out of time, at each commit.

Each request stands at one side of a commit. Then its stream is cancelled on another process and it goes on, or its time
runs out where it stands. What is left is what a kill may leave: a pause held or over, and a next turn that is valid.
"""

import asyncio
from collections.abc import Sequence

import httpx
import pytest

from tests.databases import rows
from tests.kill_points import COMMIT, DONE
from tests.live.acts import ACTS, Scene
from tests.live.battle import Attack, Ground, audit, break_off, stand
from tests.live.test_kill_points import points_of
from tests.servers import Server

pytestmark = pytest.mark.slow

STREAMS = "SELECT stream_id FROM streams JOIN conversations ON id = conversation WHERE conversation_id = $1"
BEFORE_THE_END = {"accept", "take", "continue", "touch"}
"""Transactions in which an operation's time runs; at its end it is not broken off any more."""

SHORT = {"FERMATA_TURN_TIMEOUT_SECONDS": "8"}


async def attacks_on(ground: Ground, server: Server) -> list[Attack]:
    """Give an attack for each side of each commit of each act."""
    found = [(act, point) for act in ACTS for point in await points_of(server, ground, act)]
    return [
        Attack(act, name, at, Scene(server, ground.mock, f"{act.slug}-{name}-{at}"))
        for act, (name, at) in found
        if at in {COMMIT, DONE}
    ]


async def cancel(other: Server, database: str, attack: Attack) -> None:
    """Cancel all that the conversation has; a row that is locked for long may not be had."""
    for row in await rows(database, STREAMS, attack.scene.conversation):
        response = await other.client.post(f"/v1/streams/{row['stream_id']}/cancel")
        assert response.status_code in {httpx.codes.OK, httpx.codes.SERVICE_UNAVAILABLE}, response.text


def check_told(attacks: Sequence[Attack], *besides: str) -> None:
    """Check that each host was told something that it can act on."""
    known = {"SYS_INVALID_STATE", "TOOL_ERROR", "CONVERSATION_BUSY", "SYS_SERVICE_UNAVAILABLE", "SYS_DATABASE_ERROR"}
    for attack in attacks:
        told = attack.told
        assert told.status is not None, f"{attack}: {told}"
        if not told.is_accepted:
            assert told.body["code"] in {*known, *besides}, f"{attack}: {told}"
        elif told.frames:
            assert told.whole, f"{attack}: {told}"


@pytest.mark.timeout(300)
async def test_a_cancel_at_each_commit_leaves_no_call_without_an_answer(ground: Ground) -> None:
    server, other = await asyncio.gather(ground.attacked(), ground.fresh())
    attacks = await attacks_on(ground, server)
    asking = await stand(ground.points, attacks)
    cancelling = [asyncio.create_task(cancel(other, ground.database, attack)) for attack in attacks]
    await break_off(asking, attacks, go=True)
    async with asyncio.timeout(60):
        await asyncio.gather(*cancelling)
    check_told(attacks)
    await audit(other, ground.database, attacks)


@pytest.mark.timeout(300)
async def test_time_that_runs_out_at_each_commit_leaves_no_call_without_an_answer(ground: Ground) -> None:
    server, other = await asyncio.gather(ground.attacked(**SHORT), ground.fresh())
    attacks = await attacks_on(ground, server)
    asking = await stand(ground.points, attacks)
    ending = [task for task, attack in zip(asking, attacks, strict=True) if attack.transaction in BEFORE_THE_END]
    async with asyncio.timeout(60):
        await asyncio.gather(*ending)
    await break_off(asking, attacks, go=True)
    check_told(attacks, "TURN_TIMEOUT")
    await audit(other, ground.database, attacks)
