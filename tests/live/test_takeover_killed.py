"""A process is killed while it runs a turn: another one runs the turn again, or ends it, and every reader learns so."""

import asyncio
from typing import Any

import pytest

from tests.databases import execute, rows
from tests.live.quick import LEASE, TAKEOVER_SECONDS, TOOL, durable, follow
from tests.mock_model import ModelServer
from tests.requirements import requirement
from tests.servers import Server, Servers
from tests.sse import check_order, only, text_of

HANG: dict[str, Any] = {"steps": [{"hang": True}]}
TEXT_THEN_HANG: dict[str, Any] = {"steps": [{"text": "It is "}, {"text": "late"}, {"hang": True}]}


async def two(servers: Servers, database: str, mock: ModelServer) -> list[Server]:
    return await asyncio.gather(*(servers.start(database, mock.base_url, **LEASE) for _ in range(2)))


async def test_a_turn_of_which_nothing_was_seen_is_run_again_and_its_reader_sees_each_event_once(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    a, b = await two(servers, database, mock)
    mock.script(HANG)
    async with a.stream("POST", "/v1/conversations/c/turns", json={"input": "Hello"}) as live:
        stream_id = live.response.headers["x-stream-id"]
        await live.next()
        await mock.requests(1)
        got = [*live.frames]
        await a.kill()
    await follow(b, stream_id, got)
    check_order(got)
    assert text_of(got) == "You said: Hello"
    assert [frame.event for frame in got].count("final_response") == 1
    assert [frame.event for frame in got].count("end") == 1
    assert got[-1].data["status"] == "completed"
    first, second = (request["body"]["messages"] for request in await mock.requests(2))
    assert first == second
    stored = await b.get("/v1/conversations/c/messages")
    assert [message["role"] for message in stored["items"]] == ["user", "assistant"]
    assert (await rows(database, "SELECT attempt, status FROM inbound_messages"))[0]["attempt"] == 2
    await b.turn("c", "And again?")


@requirement("R216")
async def test_a_turn_that_was_seen_is_ended_with_what_its_readers_had(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    a, b = await two(servers, database, mock)
    mock.script(TEXT_THEN_HANG)
    got = []
    async with a.stream("POST", "/v1/conversations/c/turns", json={"input": "What time is it?"}) as live:
        stream_id = live.response.headers["x-stream-id"]
        await live.until("text_delta")
        await live.until("text_delta")
        await durable(database, stream_id, live.frames[-1].n)
        got += live.frames
        await a.kill()
    await follow(b, stream_id, got)
    check_order(got)
    assert text_of(got) == "It is late"
    assert only(got, "error").data["code"] == "TURN_INTERRUPTED"
    assert only(got, "final_response").data["final_response_text"] == "It is late"
    assert only(got, "end").data["status"] == "failed"
    assert len(await mock.requests(1)) == 1
    await b.turn("c", "Go on")
    told = (await mock.requests(2))[1]["body"]["messages"]
    assert [(message["role"], message["content"]) for message in told[-3:]] == [
        ("user", "What time is it?"),
        ("assistant", "It is late"),
        ("user", "Go on"),
    ]


@pytest.mark.slow
async def test_a_turn_that_kills_its_process_is_run_at_most_twice(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    a, b = await two(servers, database, mock)
    mock.script(HANG, HANG)
    async with a.stream("POST", "/v1/conversations/c/turns", json={"input": "Boom"}) as live:
        stream_id = live.response.headers["x-stream-id"]
        await mock.requests(1)
        await a.kill()
    async with asyncio.timeout(TAKEOVER_SECONDS):
        while len(mock.seen.requests) < 2:  # noqa: ASYNC110 - another process asks
            await asyncio.sleep(0.02)
    await b.kill()
    c = await servers.start(database, mock.base_url, **LEASE)
    got: list[Any] = []
    await follow(c, stream_id, got)
    assert only(got, "error").data["code"] == "TURN_INTERRUPTED"
    assert only(got, "end").data["status"] == "failed"
    assert len(mock.seen.requests) == 2
    await c.turn("c", "Better now?")


async def test_a_turn_with_a_key_of_its_own_is_never_run_again(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    a, b = await two(servers, database, mock)
    mock.script(HANG)
    body = {"input": "Hello", "provider_api_keys": {"openai": "sk-mine"}}
    async with a.stream("POST", "/v1/conversations/c/turns", json=body) as live:
        stream_id = live.response.headers["x-stream-id"]
        await mock.requests(1)
        await a.kill()
    got: list[Any] = []
    await follow(b, stream_id, got)
    assert only(got, "error").data["code"] == "TURN_INTERRUPTED"
    assert len(mock.seen.requests) == 1
    stored = await rows(database, "SELECT payload::text AS payload FROM inbound_messages")
    assert "sk-mine" not in stored[0]["payload"]


@pytest.mark.parametrize("seen", [False, True])
async def test_a_continuation_is_run_again_from_its_pause_and_stored_results_or_ended(
    servers: Servers, database: str, mock: ModelServer, *, seen: bool
) -> None:
    a, b = await two(servers, database, mock)
    paused = await a.turn("c", "What is the weather?", tools=[TOOL])
    stream_id = paused[0].data["stream_id"]
    call = only(paused, "tool_call_request").data["tool_calls"][0]["id"]
    mock.script(TEXT_THEN_HANG if seen else HANG)
    body = {"results": [{"tool_call_id": call, "output": "21 degrees"}]}
    got = [*paused]
    async with a.stream("POST", f"/v1/streams/{stream_id}/tool-results", json=body) as live:
        await live.until("text_delta" if seen else "tool_result_emission")
        await mock.requests(2)
        if seen:
            await durable(database, stream_id, live.frames[-1].n)
        got += live.frames
        await a.kill()
    await follow(b, stream_id, got)
    check_order(got)
    assert [frame.event for frame in got].count("tool_result_emission") == 1
    messages = [request["body"]["messages"] for request in mock.seen.requests]
    if seen:
        assert only(got, "error").data["code"] == "TURN_INTERRUPTED"
        assert len(messages) == 2
    else:
        assert text_of(got) == "The tool says: 21 degrees"
        assert messages[1] == messages[2]
    assert [message["role"] for message in (await b.get("/v1/conversations/c/messages"))["items"]][:3] == [
        "user",
        "assistant",
        "tool",
    ]
    assert await b.get("/v1/conversations/c/pending-request") is None
    await b.turn("c", "Thanks")


async def test_a_held_pause_is_not_touched_by_a_crash(servers: Servers, database: str, mock: ModelServer) -> None:
    a, b = await two(servers, database, mock)
    paused = await a.turn("c", "What is the weather?", tools=[TOOL])
    before = await a.get("/v1/conversations/c/pending-request")
    await a.kill()
    async with asyncio.timeout(TAKEOVER_SECONDS):
        while not await rows(database, "SELECT 1 FROM replicas WHERE dead"):  # noqa: ASYNC110 - B marks it
            await asyncio.sleep(0.05)
    assert await b.get("/v1/conversations/c/pending-request") == before
    call = before["tool_calls"][0]["id"]
    frames = await b.results(paused[0].data["stream_id"], {"tool_call_id": call, "output": "21"})
    assert frames[-1].data["status"] == "completed"


STALL = """
CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$;
CREATE TRIGGER stall BEFORE {what} FOR EACH ROW {when} EXECUTE FUNCTION stall()
"""
AT_WORK = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"


async def stalled(database: str) -> None:
    async with asyncio.timeout(TAKEOVER_SECONDS):
        while not await rows(database, AT_WORK):  # noqa: ASYNC110 - another process gets there
            await asyncio.sleep(0.02)


async def unstall(database: str, table: str) -> None:
    await execute(database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
    await execute(database, f"DROP TRIGGER stall ON {table}")


async def test_a_kill_between_a_tools_effect_and_its_journal_ends_the_turn_and_the_tool_is_not_run_again(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    a, b = await two(servers, database, mock)
    await execute(
        database,
        STALL.format(
            what="UPDATE ON inbound_messages", when="WHEN (cardinality(NEW.journal) > cardinality(OLD.journal))"
        ),
    )
    mock.script({"steps": [{"call": {"name": "current_time"}}]})
    async with a.stream("POST", "/v1/conversations/c/turns", json={"input": "What time is it?"}) as live:
        stream_id = live.response.headers["x-stream-id"]
        await live.until("tool_call_request")
        await stalled(database)
        got = [*live.frames]
        await a.kill()
    await unstall(database, "inbound_messages")
    await follow(b, stream_id, got)
    check_order(got)
    assert only(got, "error").data["code"] == "TURN_INTERRUPTED"
    assert len(mock.seen.requests) == 1
    await b.turn("c", "And now?")


@pytest.mark.parametrize(
    "table",
    [
        "streams",
        pytest.param("messages", marks=pytest.mark.slow),
        pytest.param("stream_events", marks=pytest.mark.slow),
    ],
)
async def test_a_kill_between_two_statements_of_the_last_transaction_leaves_no_half_of_it(
    servers: Servers, database: str, mock: ModelServer, table: str
) -> None:
    a, b = await two(servers, database, mock)
    what = {
        "messages": "INSERT ON messages",
        "stream_events": "INSERT ON stream_events",
        "streams": "UPDATE ON streams",
    }[table]
    when = {
        "messages": "WHEN (NEW.role = 'assistant')",
        "stream_events": "WHEN (position('event: end'::bytea in NEW.frames) > 0)",
        "streams": "WHEN (NEW.status = 'completed')",
    }[table]
    await execute(database, STALL.format(what=what, when=when))
    async with a.stream("POST", "/v1/conversations/c/turns", json={"input": "Hello"}) as live:
        stream_id = live.response.headers["x-stream-id"]
        await live.until("text_delta")
        await stalled(database)
        got = [*live.frames]
        assert "final_response" not in {frame.event for frame in got}
        await a.kill()
    await unstall(database, table)
    await follow(b, stream_id, got)
    check_order(got)
    assert only(got, "error").data["code"] == "TURN_INTERRUPTED"
    assert [frame.event for frame in got].count("end") == 1
    # What of the text was stored is the reply, whole or not at all.
    text = only(got, "final_response").data["final_response_text"]
    stored = await b.get("/v1/conversations/c/messages")
    assert [message["content"] for message in stored["items"]] == ["Hello", *([text] if text else [])]
    await b.turn("c", "Again")


OLD_ENOUGH = "SELECT 1 FROM replicas HAVING max(started_at) < now() - interval '11 s'"


@pytest.mark.slow
async def test_with_the_usual_lease_a_killed_process_is_replaced_within_fifteen_seconds(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    a, b = await asyncio.gather(*(servers.start(database, mock.base_url) for _ in range(2)))
    mock.script(TEXT_THEN_HANG)
    async with a.stream("POST", "/v1/conversations/c/turns", json={"input": "Hello"}) as live:
        stream_id = live.response.headers["x-stream-id"]
        await live.until("text_delta")
        # B must have been in contact for a whole lease before it may judge.
        async with asyncio.timeout(20):
            while not await rows(database, OLD_ENOUGH):  # noqa: ASYNC110 - time passes in the database
                await asyncio.sleep(0.1)
        await a.kill()
    got: list[Any] = []
    await follow(b, stream_id, got, TAKEOVER_SECONDS)
    assert only(got, "end").data["status"] == "failed"
