"""What no request does is broken off too: takeovers, expiries, the writer of the event log; and tool rounds."""

import asyncio
from signal import SIGKILL
from typing import Any

import pytest

from app.domain.ids import row_key
from tests.databases import rows
from tests.kill_points import COMMIT, DONE, At, Hold
from tests.live.acts import Act, Scene, Told
from tests.live.audit import check_streams, check_tables, settled
from tests.live.battle import Attack, Ground, audit, break_off
from tests.sse import check_whole, frames_of, only, text_of

pytestmark = pytest.mark.slow

UNSEEN: dict[str, Any] = {"steps": [{"hang": True}]}
SEEN: dict[str, Any] = {"steps": [{"text": "It is "}, {"hang": True}]}
TOOL_ROUND: dict[str, Any] = {"steps": [{"call": {"id": "call_time", "name": "current_time"}}]}


async def nothing(_: Scene) -> None:
    return


HELLO = Act("hello", nothing, lambda scene: scene.say("Hello"), ())


async def drop_when_reached(*holds: Hold) -> None:
    async def drop(hold: Hold) -> None:
        await hold.reached(40)
        hold.drop()

    await asyncio.gather(*map(drop, holds))


async def hanging(ground: Ground, names: list[str], answer: dict[str, Any]) -> list[Attack]:
    """Kill a process that runs a turn for each name, and give what it had told."""
    server = await ground.fresh()
    attacks = [Attack(HELLO, "takeover", 0, Scene(server, ground.mock, name)) for name in names]
    before = len(ground.mock.seen.requests)
    ground.mock.script(*(answer for _ in names))
    asking = [asyncio.create_task(HELLO.request(attack.scene)) for attack in attacks]
    await ground.mock.requests(before + len(names))
    if answer is SEEN:
        async with asyncio.timeout(20):
            while len(await rows(ground.database, TOUCHED)) < len(names):  # noqa: ASYNC110 - the text goes out
                await asyncio.sleep(0.02)
    server.signal(SIGKILL)
    for attack, told in zip(attacks, asking, strict=True):
        attack.told = await told
    await server.kill()
    return attacks


TOUCHED = "SELECT 1 FROM inbound_messages WHERE touched AND status = 'running'"


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("answer", [UNSEEN, SEEN], ids=["run again", "ended"])
async def test_a_takeover_that_is_cut_anywhere_is_made_good(ground: Ground, answer: dict[str, Any]) -> None:
    chosen: list[At] = [0, 1, 3, COMMIT, DONE]
    attacks = await hanging(ground, [f"at-{at}" for at in chosen], answer)
    holds = [
        ground.points.hold("takeover", at, row_key("", attack.scene.conversation))
        for at, attack in zip(chosen, attacks, strict=True)
    ]
    other = await ground.attacked()
    await drop_when_reached(*holds)
    await audit(other, ground.database, attacks)


@pytest.mark.slow
async def test_a_process_that_is_killed_in_a_takeover_is_followed_by_another(ground: Ground) -> None:
    attacks = await hanging(ground, ["first"], UNSEEN)
    hold = ground.points.hold("takeover", DONE, row_key("", "first"))
    second = await ground.attacked()
    await hold.reached(30)
    second.signal(SIGKILL)
    await second.kill()
    hold.drop()
    third = await ground.fresh()
    await audit(third, ground.database, attacks)
    status = await rows(ground.database, "SELECT attempt, status FROM inbound_messages ORDER BY created_at")
    assert (status[0]["attempt"], status[0]["status"]) == (2, "failed")


async def pause_briefly(ground: Ground, server: Any, on_expiry: str, name: str) -> Scene:
    scene = Scene(server, ground.mock, name)
    await scene.pause(pause_ttl_seconds=1, on_expiry=on_expiry)
    return scene


@pytest.mark.parametrize(("on_expiry", "transaction"), [("close", "end"), ("continue", "continue")])
async def test_an_expiry_that_is_cut_anywhere_is_made_good(ground: Ground, on_expiry: str, transaction: str) -> None:
    server = await ground.attacked()
    chosen: list[At] = [0, 3, COMMIT, DONE]
    holds = [ground.points.hold(transaction, at, row_key("", f"at-{at}")) for at in chosen]
    scenes = [await pause_briefly(ground, server, on_expiry, f"at-{at}") for at in chosen]
    await drop_when_reached(*holds)
    await until_resolved(ground)
    await audit(server, ground.database, [Attack(HELLO, transaction, 0, scene) for scene in scenes])
    for scene in scenes:
        frames = await check_streams(server, ground.database, scene.conversation)
        told = [frame.data["updates"]["pause_resolved"] for frame in frames if "pause_resolved" in str(frame.data)]
        assert told == [{"pause_id": scene.pause_id, "by": "expired"}]


@pytest.mark.slow
@pytest.mark.parametrize(("on_expiry", "transaction"), [("close", "end"), ("continue", "continue")])
@pytest.mark.parametrize("at", [COMMIT, DONE])
async def test_an_expiry_whose_process_is_killed_is_made_good_by_another(
    ground: Ground, on_expiry: str, transaction: str, at: At
) -> None:
    server = await ground.attacked()
    scene = await pause_briefly(ground, server, on_expiry, "c")
    hold = ground.points.hold(transaction, at, row_key("", "c"))
    await hold.reached()
    server.signal(SIGKILL)
    await server.kill()
    hold.drop()
    other = await ground.fresh()
    await until_resolved(ground)
    await audit(other, ground.database, [Attack(HELLO, transaction, at, scene)])


async def until_resolved(ground: Ground) -> None:
    async with asyncio.timeout(20):
        while await rows(ground.database, "SELECT 1 FROM pending_external_tool_requests WHERE state <> 'ended'"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, DONE])
async def test_a_flush_whose_outcome_is_not_known_is_written_once(ground: Ground, at: At) -> None:
    server = await ground.attacked()
    words: list[dict[str, Any]] = [{"text": f"{number} "} for number in range(30)]
    ground.mock.script({"steps": [*words, {"wait": 0.3}, *words]})
    hold = ground.points.hold("flush", at)
    scene = Scene(server, ground.mock, "c")
    telling = asyncio.create_task(scene.say("Count"))
    await hold.reached()
    hold.drop()
    told = await telling
    check_whole(told.frames)
    replayed = await server.replay(told.frames[0].data["stream_id"])
    assert replayed == b"".join(frame.raw for frame in told.frames)
    assert text_of(frames_of(replayed)) == "".join(word["text"] for word in [*words, *words])


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, DONE])
async def test_a_process_that_is_killed_in_a_flush_leaves_a_log_without_gaps(ground: Ground, at: At) -> None:
    server = await ground.attacked()
    gate = f"flushes are watched at {at}"
    ground.mock.script({"steps": [{"text": "It is "}, {"gate": gate}, {"text": "late"}, {"hang": True}]})
    attack = Attack(HELLO, "flush", at, Scene(server, ground.mock, "c"))
    telling = asyncio.create_task(HELLO.request(attack.scene))
    async with asyncio.timeout(20):
        while not await rows(ground.database, TOUCHED):  # noqa: ASYNC110 - a turn that nobody saw would be run again
            await asyncio.sleep(0.02)
    hold = ground.points.hold("flush", at)
    ground.mock.open(gate)
    await hold.reached()
    server.signal(SIGKILL)
    attack.told = await telling
    await server.kill()
    hold.drop()
    other = await ground.fresh()
    await audit(other, ground.database, [attack])


async def test_a_process_that_is_killed_in_a_tool_round_never_runs_the_tool_twice(ground: Ground) -> None:
    server = await ground.attacked()
    attacks = [
        Attack(
            Act("round", nothing, lambda scene: scene.say("What time is it?"), ()),
            name,
            at,
            Scene(server, ground.mock, f"{name}-{at}"),
        )
        for name in ("touch", "journal")
        for at in (0, COMMIT, DONE)
    ]
    asking: list[asyncio.Task[Told]] = []
    for attack in attacks:
        ground.mock.script(TOOL_ROUND)
        attack.hold = ground.points.hold(attack.transaction, attack.at, row_key("", attack.scene.conversation))
        asking.append(asyncio.create_task(attack.act.request(attack.scene)))
        await attack.hold.reached()
    server.signal(SIGKILL)
    await break_off(asking, attacks, go=False)
    await server.kill()
    other = await ground.fresh()
    await settled(ground.database)
    await check_tables(ground.database)
    for attack in attacks:
        frames = await check_streams(other, ground.database, attack.scene.conversation, attack.told.frames)
        unseen = attack.transaction == "touch" and attack.at != DONE
        assert frames[-1].data["status"] == ("completed" if unseen else "failed"), f"{attack}"
        if not unseen:
            assert only(frames, "error").data["code"] == "TURN_INTERRUPTED"
    await audit(other, ground.database, attacks)
