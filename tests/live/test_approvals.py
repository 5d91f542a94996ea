"""Calls that wait for a person's word, when the process dies: before the word, after it, and while the tool runs."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from app.domain.ids import row_key
from tests.live.acts import Scene
from tests.live.audit import check_streams, check_tables, settled
from tests.live.battle import SETTINGS, Ground
from tests.servers import Server
from tests.till import Till, till, wants_back

pytestmark = pytest.mark.slow

CENTS = (100, 200, 300, 400)


async def pause(server: Server, ground: Ground, name: str, cents: int) -> Scene:
    """Bring a conversation to the pause that asks for one approval."""
    ground.mock.script(wants_back(cents))
    scene = Scene(server, ground.mock, name)
    await scene.pause()
    assert scene.calls == (f"call-{cents}",)
    return scene


def says(scene: Scene, **more: Any) -> list[dict[str, Any]]:
    return [{"tool_call_id": scene.calls[0], "approval": {"approved": True, **more}}]


async def answers(server: Server, scene: Scene) -> list[dict[str, Any]]:
    page = await server.get(f"/v1/conversations/{scene.conversation}/messages", limit=200)
    return [message for message in page["items"] if message["role"] == "tool"]


async def ended(server: Server, scene: Scene) -> dict[str, Any]:
    """Wait until the stream of the scene is closed, and give its state."""
    async with asyncio.timeout(60):
        while True:
            view: dict[str, Any] = await server.get(f"/v1/streams/{scene.stream_id}")
            if view["status"] not in {"running", "paused"}:
                return view
            await asyncio.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Four:
    """Four conversations that wait for a word, each for another fate."""

    held: Scene
    denied: Scene
    taken: Scene
    running: Scene

    @property
    def all(self) -> tuple[Scene, ...]:
        return self.held, self.denied, self.taken, self.running


async def killed_in_the_middle(ground: Ground, money: Till, first: Server) -> Four:
    """Kill the process with two approvals given: one before its tool is begun, the other while the tool runs."""
    names = ("held", "denied", "taken", "running")
    four = Four(*[await pause(first, ground, name, cents) for name, cents in zip(names, CENTS, strict=True)])
    point = ground.points.hold("touch", 0, row_key("", four.taken.conversation))
    asking = [asyncio.create_task(four.taken.pass_results(says(four.taken)))]
    await point.reached()
    money.opened.clear()
    asking.append(asyncio.create_task(four.running.pass_results(says(four.running))))
    await asyncio.wait_for(money.asked.wait(), 20)
    assert money.paid == [400]
    first.signal(SIGKILL)
    point.drop()
    await asyncio.gather(*asking)
    await first.kill()
    money.opened.set()
    return four


async def decide(four: Four, fresh: Server) -> None:
    """Give the word on the two that were still held, on a process that never saw them."""
    held, denied = four.held, four.denied
    held.server = denied.server = fresh
    bad = await held.pass_results(says(held, arguments={"cents": 0}))
    assert (bad.status, bad.body["code"]) == (422, "SYS_VALIDATION_ERROR")
    done = await held.pass_results(says(held, arguments={"cents": 10}, approved_by="Grace"))
    assert done.frames[-1].data["status"] == "completed"
    refusal = {"tool_call_id": denied.calls[0], "approval": {"approved": False, "reason": "Not today."}}
    assert (await denied.pass_results([refusal])).frames[-1].data["status"] == "completed"


@pytest.mark.timeout(180)
async def test_no_tool_runs_twice_and_every_approval_has_its_end(ground: Ground, tmp_path: Path) -> None:
    async with till() as money:
        files = money.settings(tmp_path)
        four = await killed_in_the_middle(ground, money, await ground.attacked(**files))
        fresh = await ground.servers.start(ground.database, ground.mock.base_url, **SETTINGS, **files)
        assert (await ended(fresh, four.taken))["status"] == "completed"
        assert (await ended(fresh, four.running))["error"]["code"] == "TURN_INTERRUPTED"
        await decide(four, fresh)

        changed, not_today, paid, unknown = [(await answers(fresh, scene))[0] for scene in four.all]
        assert json.loads(changed["content"])["output"] == {"paid": 10}
        assert changed["metadata"]["approval"]["by"] == "Grace"
        assert "Not today." in not_today["content"]
        assert json.loads(paid["content"]) == {"paid": 300}
        assert unknown["is_error"]
        assert "EXTERNAL_TOOL_NOT_RUN" in unknown["content"]

        await settled(ground.database)
        await check_tables(ground.database)
        for scene in four.all:
            await check_streams(fresh, ground.database, scene.conversation)
            assert (await fresh.turn(scene.conversation, "And now?"))[-1].data["status"] == "completed"
        assert [asked["violations"] for asked in ground.mock.seen.requests if asked["violations"]] == []
        assert sorted(money.paid) == [10, 300, 400]
        await fresh.stop()
