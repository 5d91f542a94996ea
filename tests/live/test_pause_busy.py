"""Many clients at once on one conversation, on two processes: refused, in order, giving way; and one key for all."""

import asyncio
from typing import Any

import pytest

from tests.databases import rows
from tests.live.acts import Scene, Told
from tests.live.audit import check_streams, check_tables, settled
from tests.live.battle import Two
from tests.servers import CUT

CLIENTS = 50
HOLD: dict[str, Any] = {"steps": [{"text": "It is "}, {"hang": True}]}
OPERATIONS = """
SELECT entry.place, entry.status FROM inbound_messages entry JOIN conversations ON id = conversation
WHERE conversation_id = $1 ORDER BY entry.fence
"""
WAITING = """
SELECT 1 FROM inbound_messages entry JOIN conversations ON id = conversation
WHERE conversation_id = $1 AND entry.status = 'waiting'
"""


def at_both(two: Two, name: str) -> list[Scene]:
    ground, a, b = two
    return [Scene(server, ground.mock, name) for server in (a, b)]


async def running_first(two: Two, name: str) -> "asyncio.Task[Told]":
    """Start a turn that does not end by itself."""
    ground = two[0]
    scene = at_both(two, name)[0]
    asked = len(ground.mock.seen.requests)
    ground.mock.script(HOLD)
    first = asyncio.create_task(scene.say("First"))
    await ground.mock.requests(asked + 1)
    return first


async def all_at_once(two: Two, name: str, **more: Any) -> list["asyncio.Task[Told]"]:
    here, there = at_both(two, name)
    return [
        asyncio.create_task((there if number % 2 else here).say(f"Turn {number}", **more)) for number in range(CLIENTS)
    ]


async def cancel_running(two: Two, name: str) -> None:
    _, a, _ = two
    view = await a.get(f"/v1/conversations/{name}")
    response = await a.client.post(f"/v1/streams/{view['active_stream_id']}/cancel")
    assert response.json() == {"status": "cancelling"}


async def check_one_at_a_time(two: Two, name: str) -> list[Any]:
    """Check what is left when all is quiet, and that no two turns are mixed; gives the operations in order."""
    ground, _, b = two
    await settled(ground.database)
    await check_tables(ground.database)
    await check_streams(b, ground.database, name)
    stored = await rows(
        ground.database,
        "SELECT turn_id FROM messages JOIN conversations ON id = conversation WHERE conversation_id = $1 "
        "ORDER BY position",
        name,
    )
    turns = [row["turn_id"] for row in stored]
    grouped = [turn for place, turn in enumerate(turns) if place == 0 or turns[place - 1] != turn]
    assert len(grouped) == len(set(grouped)), "messages of two turns are mixed"
    return await rows(ground.database, OPERATIONS, name)


async def test_all_but_one_are_refused_and_told_which_stream_runs(two: Two, name: str) -> None:
    first = await running_first(two, name)
    told = [await one for one in await all_at_once(two, name, on_busy="reject")]
    running = (await two[1].get(f"/v1/conversations/{name}"))["active_stream_id"]
    assert {said.status for said in told} == {409}
    assert {(said.body["code"], said.body["stream_id"]) for said in told} == {("CONVERSATION_BUSY", running)}
    await cancel_running(two, name)
    assert (await first).frames[-1].data["status"] == "cancelled"
    assert len(await check_one_at_a_time(two, name)) == 1


@pytest.mark.timeout(120)
async def test_those_who_wait_go_in_the_order_of_their_arrival_and_the_rest_is_sent_away(two: Two, name: str) -> None:
    first = await running_first(two, name)
    waiting = await all_at_once(two, name, on_busy="wait")
    async with asyncio.timeout(60):
        while sum(one.done() for one in waiting) < CLIENTS - 10:  # noqa: ASYNC110 - the queue is full
            await asyncio.sleep(0.02)
    refused = [one.result() for one in waiting if one.done()]
    assert {(said.status, said.body["code"]) for said in refused} == {(429, "SYS_RATE_LIMIT_EXCEEDED")}
    await cancel_running(two, name)
    accepted = [said for one in waiting if (said := await one).is_accepted]
    assert len(accepted) == 10
    assert {said.frames[-1].data["status"] for said in accepted} == {"completed"}
    assert (await first).frames[-1].data["status"] == "cancelled"
    places = [row["place"] for row in (await check_one_at_a_time(two, name))[1:]]
    assert None not in places
    assert places == sorted(places)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("on_busy", ["interrupt", pytest.param("rollback", marks=pytest.mark.slow)])
async def test_those_who_interrupt_replace_each_other_and_the_last_one_runs(two: Two, name: str, on_busy: str) -> None:
    ground, a, _ = two
    first = await running_first(two, name)
    told = [await one for one in await all_at_once(two, name, on_busy=on_busy)]
    cut = await first
    assert cut.frames[-1].data["status"] == "cancelled"
    ran = [said for said in told if said.is_accepted]
    # Fifty who want one row at once may wait too long for it, on a machine that is busy with other things.
    refusals = {"CONVERSATION_BUSY", "SYS_DATABASE_ERROR"}
    assert {said.body["code"] for said in told if not said.is_accepted} <= refusals
    assert ran, "nobody ran"
    assert {said.frames[-1].data["status"] for said in ran} <= {"completed", "cancelled"}
    assert "completed" in {said.frames[-1].data["status"] for said in ran}
    await check_one_at_a_time(two, name)
    await a.turn(name, "And now?")
    sent = [message["content"] for message in ground.mock.seen.requests[-1]["body"]["messages"]]
    assert ("First" in sent) == (on_busy == "interrupt")
    assert ("It is " in sent) == (on_busy == "interrupt")
    kept = [message["content"] for message in (await a.get(f"/v1/conversations/{name}/messages", limit=200))["items"]]
    assert {"First", "It is "} <= set(kept)


async def test_a_waiter_that_leaves_is_never_run(two: Two, name: str) -> None:
    ground, a, b = two
    first = await running_first(two, name)
    leaving = asyncio.create_task(Scene(b, ground.mock, name).say("Leaving", on_busy="wait"))
    async with asyncio.timeout(20):
        while not await rows(ground.database, WAITING, name):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        leaving.cancel()
        while await rows(ground.database, WAITING, name):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await cancel_running(two, name)
    await first
    await a.turn(name, "And now?")
    assert len(await check_one_at_a_time(two, name)) == 2


@pytest.mark.parametrize("on_busy", ["reject", "wait"])
async def test_a_key_that_comes_twenty_times_at_once_names_one_turn(two: Two, name: str, on_busy: str) -> None:
    ground, _, _ = two
    asked = len(ground.mock.seen.requests)
    here, there = at_both(two, name)
    key = {"headers": {"Idempotency-Key": f"key of {name}"}}
    path, body = f"/v1/conversations/{name}/turns", {"input": "Hello", "on_busy": on_busy}
    told = await asyncio.gather(*(scene.tell(path, body, **key) for scene in [here, there] * 10))
    assert {said.status for said in told} == {200}, [said.body for said in told if said.status != 200]
    assert len({said.frames[0].data["stream_id"] for said in told}) == 1
    assert len({b"".join(frame.raw for frame in said.frames) for said in told}) == 1
    assert len(ground.mock.seen.requests) == asked + 1
    other = await here.tell(path, {"input": "Hello!", "on_busy": on_busy}, **key)
    assert (other.status, other.body["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")
    assert len(await check_one_at_a_time(two, name)) == 1


async def test_a_key_whose_first_answer_was_lost_attaches_to_the_same_turn_also_after_a_restart(
    two: Two, name: str
) -> None:
    ground, a, _ = two
    asked = len(ground.mock.seen.requests)
    body, headers = {"input": "Hello"}, {"Idempotency-Key": f"key of {name}"}
    path = f"/v1/conversations/{name}/turns"
    stream_id = ""
    try:
        async with a.client.stream("POST", path, json=body, headers=headers) as response:
            stream_id = response.headers["x-stream-id"]
    except CUT:
        pass
    here, there = at_both(two, name)
    fresh = await ground.fresh()
    again = [here, there] * 10 + [Scene(fresh, ground.mock, name)]
    told = await asyncio.gather(*(scene.tell(path, body, headers=headers) for scene in again))
    assert {said.status for said in told} == {200}, [said.body for said in told if said.status != 200]
    assert {said.frames[0].data["stream_id"] for said in told} == {stream_id}
    assert {said.frames[-1].data["status"] for said in told} == {"completed"}
    response = await fresh.client.post(path, json=body, headers=headers)
    assert response.headers["idempotency-replayed"] == "true"
    await fresh.stop()
    assert len(ground.mock.seen.requests) == asked + 1
    stored = await here.server.get(f"/v1/conversations/{name}/messages")
    assert [message["role"] for message in stored["items"]] == ["user", "assistant"]
