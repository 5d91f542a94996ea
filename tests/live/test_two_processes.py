"""Two servers on one database, over real HTTP: what one has begun, the other carries on or ends."""

import asyncio
from typing import Any

import asyncpg
import httpx

from tests.live.quick import TOOL
from tests.mock_model import ModelServer
from tests.requirements import requirement
from tests.servers import PATIENCE, Server, Servers
from tests.sse import Frame, check_order, check_whole, frames_of, only, text_of

NOT_RUN = "EXTERNAL_TOOL_NOT_RUN"
QUESTION = "What is the weather?"


async def paused(server: Server, conversation: str) -> Frame:
    """Run a turn that pauses, and give its request."""
    frames = await server.turn(conversation, QUESTION, tools=[TOOL])
    check_whole(frames)
    assert frames[-1].data["status"] == "paused"
    return only(frames, "tool_call_request")


def answer_to(request: dict[str, Any], output: Any = "21 degrees") -> list[dict[str, Any]]:
    return [{"tool_call_id": call["id"], "output": output} for call in request["tool_calls"]]


async def goes_on(server: Server, conversation: str) -> None:
    """Check that the conversation's next turn works; what the model was asked is checked when the test ends."""
    frames = await server.turn(conversation, "And now?")
    check_whole(frames)
    assert text_of(frames) == "You said: And now?"


@requirement("R199")
async def test_a_pause_outlives_its_process_and_is_carried_on_by_another(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    a, b = await asyncio.gather(*(servers.start(database, mock.base_url) for _ in range(2)))
    requests = {way: await paused(a, way) for way in ("stream", "resume")}
    await a.kill()
    for number, (way, request) in enumerate(requests.items()):
        pending = await b.get(f"/v1/conversations/{way}/pending-request")
        assert (pending["pause_id"], pending["stream_id"]) == (request.data["pause_id"], request.data["stream_id"])
        assert pending["missing"] == [call["id"] for call in request.data["tool_calls"]]
        if way == "stream":
            done = await b.results(pending["stream_id"], *answer_to(pending))
        else:
            body = {"pause_id": pending["pause_id"], "results": answer_to(pending)}
            done = await b.post("/v1/conversations/resume/resume", body)
        check_whole(done)
        assert text_of(done) == "The tool says: 21 degrees"
        assert (done[0].data["stream_id"] == pending["stream_id"]) is (way == "stream")
        assert await b.get(f"/v1/conversations/{way}/pending-request") is None
        # The model was told the same on both processes, up to the answer.
        asked = [request["body"]["messages"] for request in mock.seen.requests]
        before, after = asked[number], asked[-1]
        assert after[: len(before)] == before
        assert [message["role"] for message in after[len(before) :]] == ["assistant", "tool"]
        await goes_on(b, way)


@requirement("R106", "R110", "R113", "R114")
async def test_a_turn_on_one_process_ends_the_pause_of_another(pair: tuple[Server, Server], model: ModelServer) -> None:
    a, b = pair
    request = await paused(a, "ended")
    check_whole(await b.turn("ended", "Never mind."))

    stored = (await a.get("/v1/conversations/ended/messages"))["items"]
    assert [message["role"] for message in stored] == ["user", "assistant", "tool", "user", "assistant"]
    assert NOT_RUN in stored[2]["content"]
    assert stored[2]["tool_call_id"] == stored[1]["tool_calls"][0]["id"]
    for server in (a, b):
        late = await server.client.post(
            f"/v1/streams/{request.data['stream_id']}/tool-results", json={"results": answer_to(request.data)}
        )
        assert late.status_code == httpx.codes.CONFLICT
        assert (late.json()["code"], late.json()["reason"]) == ("TOOL_ERROR", "new_turn")
    assert await a.get("/v1/conversations/ended/pending-request") is None
    await goes_on(a, "ended")


async def test_a_stream_of_one_process_is_replayed_by_the_other_with_the_same_bytes(
    pair: tuple[Server, Server], model: ModelServer
) -> None:
    a, b = pair
    live = await paused(a, "replayed")
    stream_id = live.data["stream_id"]
    response = await a.client.post(f"/v1/streams/{stream_id}/tool-results", json={"results": answer_to(live.data)})
    second = b"".join(frame.raw for frame in frames_of(response.content))

    whole = await a.replay(stream_id)
    assert await b.replay(stream_id) == whole
    assert whole.endswith(second)
    check_order(frames_of(whole))
    assert await b.replay(stream_id, after=live.id) == whole[whole.index(live.raw) + len(live.raw) :]
    await goes_on(b, "replayed")


@requirement("R73", "R89")
async def test_of_two_posts_of_results_at_once_on_two_processes_one_goes_on(
    pair: tuple[Server, Server], model: ModelServer
) -> None:
    a, b = pair
    request = await paused(a, "raced")
    path = f"/v1/streams/{request.data['stream_id']}/tool-results"
    gate = await asyncpg.connect(a.database)
    async with gate.transaction():
        await gate.execute("SELECT 1 FROM conversations WHERE conversation_id = 'raced' FOR UPDATE")
        posts = [
            asyncio.create_task(server.client.post(path, json={"results": answer_to(request.data, text)}))
            for server, text in ((a, "21"), (b, "22"))
        ]
        await waiting(a.database, 2)  # both have passed every check that needs no lock
    await gate.close()
    refused, accepted = sorted(await asyncio.gather(*posts), key=lambda response: response.is_success)

    assert refused.status_code == httpx.codes.CONFLICT
    assert refused.json()["code"] == "SYS_INVALID_STATE"
    frames = frames_of(accepted.content)
    check_whole(frames)
    assert len(await model.requests()) == 2
    stored = (await a.get("/v1/conversations/raced/messages"))["items"]
    taken = [message["content"] for message in stored if message["role"] == "tool"]
    assert taken == [only(frames, "tool_result_emission").data["tool_result"]]
    await goes_on(b, "raced")


async def waiting(database: str, count: int) -> None:
    """Wait until so many connections wait for a lock."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    connection = await asyncpg.connect(database)
    try:
        async with asyncio.timeout(PATIENCE):
            while await connection.fetchval(query) < count:  # noqa: ASYNC110 - the database sets no event
                await asyncio.sleep(0.01)
    finally:
        await connection.close()


async def test_a_client_that_answers_in_the_instant_it_reads_the_request_is_never_told_that_there_is_no_pause(
    pair: tuple[Server, Server],
) -> None:
    a, b = pair
    for round_number in range(10):
        other = (a, b)[round_number % 2]
        turn = {"input": QUESTION, "tools": [TOOL]}
        async with a.stream("POST", f"/v1/conversations/quick-{round_number}/turns", json=turn) as live:
            request = await live.until("tool_call_request")
            done = await other.results(request.data["stream_id"], *answer_to(request.data))
            check_whole(done)
            assert text_of(done) == "The tool says: 21 degrees"
            rest = await live.rest()
        check_whole(rest)
        assert rest[-1].data["status"] == "paused"
