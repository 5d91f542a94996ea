"""A process is killed while it runs turns: another one runs each again, or ends it, and every reader learns so."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from signal import SIGKILL, SIGSTOP, Signals
from typing import Any

import pytest

from app.domain.ids import row_key
from tests.databases import Databases, execute, rows
from tests.live.quick import LEASE, TAKEOVER_SECONDS, TOOL, busy, durable, follow, read_until_cut
from tests.mock_model import ModelServer
from tests.requirements import requirement
from tests.servers import PATIENCE, LiveStream, Server, Servers
from tests.sse import Frame, check_order, only, text_of

HANG: dict[str, Any] = {"steps": [{"hang": True}]}
WHOLE_TEXT = "It is late"
TEXT_THEN_HANG: dict[str, Any] = {"steps": [{"text": "It is "}, {"text": "late"}, {"hang": True}]}
STALL = """
CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$
"""
STALL_AT = """
CREATE TRIGGER "stall {name}" BEFORE {what} FOR EACH ROW
WHEN (NEW.conversation = '{key}' AND {when}) EXECUTE FUNCTION stall()
"""
AT_WORK = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
JOURNAL = ("inbound_messages", "UPDATE ON inbound_messages", "cardinality(NEW.journal) > cardinality(OLD.journal)")
LAST: dict[str, tuple[str, str, str]] = {
    "streams": ("streams", "UPDATE ON streams", "NEW.status = 'completed'"),
    "messages": ("messages", "INSERT ON messages", "NEW.role = 'assistant'"),
    "stream_events": (
        "stream_events", "INSERT ON stream_events", "position('event: end'::bytea in NEW.frames) > 0",
    ),
}  # fmt: skip
"""Statements of the transaction that ends a turn: table, statement, and which row of it is that end's."""


class Doomed:
    """What runs when its process is killed, by conversation; each has a model of its own name."""

    def __init__(self, server: Server, survivor: Server, mock: ModelServer) -> None:
        self.server = server
        self.survivor = survivor
        self.mock = mock
        self.reading: dict[str, LiveStream] = {}
        self.before: dict[str, list[Frame]] = {}
        self.elsewhere: dict[str, asyncio.Task[str]] = {}
        self.told: dict[str, list[Frame]] = {}
        self.open = AsyncExitStack()

    @property
    def database(self) -> str:
        return self.survivor.database

    def asked(self, name: str) -> list[Any]:
        """Give the messages of each request for the conversation's model."""
        return [request["body"]["messages"] for request in self.mock.seen.requests if request["body"]["model"] == name]

    async def begin(self, name: str, *answers: dict[str, Any], text: str = "Hello", **more: Any) -> LiveStream:
        """Begin a turn, and wait until the model is asked."""
        body = {"input": text, "options": {"model": f"openai:{name}"}, **more}
        return await self.post(name, f"/v1/conversations/{name}/turns", body, *answers)

    async def post(self, name: str, path: str, body: dict[str, Any], *answers: dict[str, Any]) -> LiveStream:
        self.mock.script(*answers, model=name)
        asked = len(self.asked(name))
        live = await self.open.enter_async_context(self.server.stream("POST", path, json=body))
        self.reading[name] = live
        await live.next()
        async with asyncio.timeout(PATIENCE):
            while len(self.asked(name)) == asked:  # noqa: ASYNC110 - the server asks
                await asyncio.sleep(0.01)
        return live

    async def pause(self, name: str) -> str:
        """Bring a conversation to a held pause; gives the call's id."""
        options = {"model": f"openai:{name}"}
        self.before[name] = await self.server.turn(name, "What is the weather?", tools=[TOOL], options=options)
        return str(only(self.before[name], "tool_call_request").data["tool_calls"][0]["id"])

    async def follow(self, name: str) -> None:
        """Read a conversation on the other process, from now on over the kill."""
        told = self.told[name] = []
        path = f"/v1/streams/{self.reading[name].frames[0].data['stream_id']}/events"
        self.elsewhere[name] = asyncio.create_task(read_until_cut(self.survivor, "GET", path, told))
        async with asyncio.timeout(PATIENCE):
            while not text_of(told):  # noqa: ASYNC110 - what the other reader hears
                await asyncio.sleep(0.01)

    async def kill(self) -> None:
        await self.server.kill()
        await self.open.aclose()

    async def outcome(self, name: str) -> list[Frame]:
        """Come back on the other process and read to the end; gives all that the reader has seen, before and after."""
        seen = [*self.before.get(name, ()), *(self.reading[name].frames if name in self.reading else ())]
        await follow(self.survivor, seen[0].data["stream_id"], seen)
        check_order(seen)
        return seen

    async def goes_on(self, name: str, text: str = "And now?") -> None:
        frames = await self.survivor.turn(name, text, options={"model": f"openai:{name}"})
        assert frames[-1].data["status"] == "completed"


async def stall(database: str, name: str, what: str, when: str) -> None:
    """Let a statement of the conversation's process stand still."""
    await execute(database, STALL_AT.format(name=name, what=what, when=when, key=row_key("", name)))


async def stand_still(doomed: Doomed) -> None:
    """Bring turns to where they stand between two statements."""
    database = doomed.database
    await execute(database, STALL)
    await stall(database, "effect", *JOURNAL[1:])
    for name, (_, what, when) in LAST.items():
        await stall(database, name, what, when)
    live = await doomed.begin("effect", {"steps": [{"call": {"name": "current_time"}}]}, text="What time is it?")
    await live.until("tool_call_request")
    for name in LAST:
        await (await doomed.begin(name)).until("text_delta")
    async with asyncio.timeout(TAKEOVER_SECONDS):
        while len(await rows(database, AT_WORK)) < 1 + len(LAST):  # noqa: ASYNC110 - another process gets there
            await asyncio.sleep(0.02)


async def let_go(database: str) -> None:
    await execute(database, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
    for name, (table, _, _) in {"effect": JOURNAL, **LAST}.items():
        await execute(database, f'DROP TRIGGER "stall {name}" ON {table}')


async def begin_all(doomed: Doomed) -> None:
    """Begin a turn of each kind; none of them can end."""
    await doomed.begin("unseen", HANG)
    await doomed.begin("own-key", HANG, provider_api_keys={"openai": "sk-mine"})
    await doomed.pause("held")
    call = await doomed.pause("again")
    await results_of(doomed, "again", call, HANG)
    call = await doomed.pause("ended")
    seen = [
        await doomed.begin("seen", TEXT_THEN_HANG, text="What time is it?"),
        await results_of(doomed, "ended", call, TEXT_THEN_HANG),
    ]
    for live in seen:
        while text_of(live.frames) != WHOLE_TEXT:
            await live.next()
        last = live.frames[-1]
        await durable(doomed.database, last.data["stream_id"], last.n, last.fence)
    await doomed.follow("seen")


async def results_of(doomed: Doomed, name: str, call: str, answer: dict[str, Any]) -> LiveStream:
    path = f"/v1/streams/{doomed.before[name][0].data['stream_id']}/tool-results"
    live = await doomed.post(name, path, {"results": [{"tool_call_id": call, "output": "21 degrees"}]}, answer)
    while live.frames[-1].event != "tool_result_emission":
        await live.next()
    return live


@pytest.fixture(scope="module")
async def doomed(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Doomed]:
    """A process that was killed while it ran a turn of each kind, and another one that is left with them."""
    servers = Servers(tmp_path_factory.mktemp("doomed"))
    async with databases.fresh() as database, ModelServer() as mock:
        try:
            a, b = await asyncio.gather(*(servers.start(database, mock.base_url, **LEASE) for _ in range(2)))
            made = Doomed(a, b, mock)
            await begin_all(made)
            await stand_still(made)
            await made.kill()
            await let_go(database)
            yield made
        finally:
            await servers.end()
        assert [request["violations"] for request in mock.seen.requests if request["violations"]] == []


async def test_a_turn_of_which_nothing_was_seen_is_run_again_and_its_reader_sees_each_event_once(
    doomed: Doomed,
) -> None:
    got = await doomed.outcome("unseen")
    assert text_of(got) == "You said: Hello"
    assert [frame.event for frame in got].count("final_response") == 1
    assert [frame.event for frame in got].count("end") == 1
    assert got[-1].data["status"] == "completed"
    first, second = doomed.asked("unseen")
    assert first == second
    stored = await doomed.survivor.get("/v1/conversations/unseen/messages")
    assert [message["role"] for message in stored["items"]] == ["user", "assistant"]
    (run,) = await rows(
        doomed.database, "SELECT attempt FROM inbound_messages WHERE stream_id = $1", got[0].data["stream_id"]
    )
    assert run["attempt"] == 2
    await doomed.goes_on("unseen")


@requirement("R216")
async def test_a_turn_that_was_seen_is_ended_with_what_its_readers_had(doomed: Doomed) -> None:
    got = await doomed.outcome("seen")
    # Who reads on the other process need not even come back.
    assert await doomed.elsewhere["seen"] == "end"
    assert [frame.raw for frame in doomed.told["seen"]] == [frame.raw for frame in got]
    assert text_of(got) == "It is late"
    assert only(got, "error").data["code"] == "TURN_INTERRUPTED"
    assert only(got, "final_response").data["final_response_text"] == "It is late"
    assert only(got, "end").data["status"] == "failed"
    assert len(doomed.asked("seen")) == 1
    await doomed.goes_on("seen", "Go on")
    told = doomed.asked("seen")[1]
    assert [(message["role"], message["content"]) for message in told[-3:]] == [
        ("user", "What time is it?"),
        ("assistant", "It is late"),
        ("user", "Go on"),
    ]


async def test_a_turn_with_a_key_of_its_own_is_never_run_again(doomed: Doomed) -> None:
    got = await doomed.outcome("own-key")
    assert only(got, "error").data["code"] == "TURN_INTERRUPTED"
    assert len(doomed.asked("own-key")) == 1
    stored = await rows(doomed.database, "SELECT payload::text AS payload FROM inbound_messages")
    assert not any("sk-mine" in row["payload"] for row in stored)


@pytest.mark.parametrize("name", ["again", "ended"])
async def test_a_continuation_is_run_again_from_its_pause_and_stored_results_or_ended_if_it_was_seen(
    doomed: Doomed, name: str
) -> None:
    got = await doomed.outcome(name)
    assert [frame.event for frame in got].count("tool_result_emission") == 1
    asked = doomed.asked(name)
    if name == "ended":
        assert only(got, "error").data["code"] == "TURN_INTERRUPTED"
        assert len(asked) == 2
    else:
        assert text_of(got) == "The tool says: 21 degrees"
        assert asked[1] == asked[2]
    stored = await doomed.survivor.get(f"/v1/conversations/{name}/messages")
    assert [message["role"] for message in stored["items"]][:3] == ["user", "assistant", "tool"]
    assert await doomed.survivor.get(f"/v1/conversations/{name}/pending-request") is None
    await doomed.goes_on(name, "Thanks")


async def test_a_held_pause_is_not_touched_by_a_crash(doomed: Doomed) -> None:
    async with asyncio.timeout(TAKEOVER_SECONDS):
        while not await rows(doomed.database, "SELECT 1 FROM replicas WHERE dead"):  # noqa: ASYNC110 - B marks it
            await asyncio.sleep(0.05)
    asked = only(doomed.before["held"], "tool_call_request").data
    pending = await doomed.survivor.get("/v1/conversations/held/pending-request")
    assert (pending["pause_id"], pending["missing"]) == (asked["pause_id"], [asked["tool_calls"][0]["id"]])
    result = {"tool_call_id": asked["tool_calls"][0]["id"], "output": "21"}
    frames = await doomed.survivor.results(asked["stream_id"], result)
    assert frames[-1].data["status"] == "completed"


async def test_a_kill_between_a_tools_effect_and_its_journal_ends_the_turn_and_the_tool_is_not_run_again(
    doomed: Doomed,
) -> None:
    got = await doomed.outcome("effect")
    assert only(got, "error").data["code"] == "TURN_INTERRUPTED"
    assert len(doomed.asked("effect")) == 1
    await doomed.goes_on("effect")


@pytest.mark.parametrize("name", LAST)
async def test_a_kill_between_two_statements_of_the_last_transaction_leaves_no_half_of_it(
    doomed: Doomed, name: str
) -> None:
    assert "final_response" not in {frame.event for frame in doomed.reading[name].frames}
    got = await doomed.outcome(name)
    assert only(got, "error").data["code"] == "TURN_INTERRUPTED"
    assert [frame.event for frame in got].count("end") == 1
    # What of the text was stored is the reply, whole or not at all.
    text = only(got, "final_response").data["final_response_text"]
    stored = await doomed.survivor.get(f"/v1/conversations/{name}/messages")
    assert [message["content"] for message in stored["items"]] == ["Hello", *([text] if text else [])]
    await doomed.goes_on(name, "Again")


@pytest.mark.slow
async def test_a_turn_that_kills_its_process_is_run_at_most_twice(
    servers: Servers, database: str, mock: ModelServer
) -> None:
    a, b = await asyncio.gather(*(servers.start(database, mock.base_url, **LEASE) for _ in range(2)))
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


OLD_ENOUGH = "SELECT 1 FROM replicas HAVING max(started_at) < now() - interval '11 s'"
PROMISED_SECONDS = 15.0


@pytest.mark.slow
@pytest.mark.parametrize("number", [SIGKILL, SIGSTOP])
async def test_with_the_usual_lease_a_process_that_is_gone_or_frozen_is_replaced_within_fifteen_seconds(
    servers: Servers, database: str, mock: ModelServer, number: Signals
) -> None:
    a, b = await asyncio.gather(*(servers.start(database, mock.base_url) for _ in range(2)))
    mock.script(TEXT_THEN_HANG)
    async with a.stream("POST", "/v1/conversations/c/turns", json={"input": "Hello"}) as live:
        stream_id = live.response.headers["x-stream-id"]
        await live.until("text_delta")
        async with b.stream("GET", f"/v1/streams/{stream_id}/events") as reader:
            await reader.until("text_delta")
            # B must have been in contact for a whole lease before it may judge.
            async with asyncio.timeout(20):
                while not await rows(database, OLD_ENOUGH):  # noqa: ASYNC110 - time passes in the database
                    await asyncio.sleep(0.1)
            a.signal(number)
            # Who reads on B need not even come back.
            frames = await reader.rest(PROMISED_SECONDS * busy())
    check_order(frames)
    assert [frame.event for frame in frames][-3:] == ["error", "final_response", "end"]
    assert only(frames, "end").data["status"] == "failed"
