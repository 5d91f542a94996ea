"""The provider over real sockets, on both transports: what closes, what breaks, what takes too long."""

import asyncio
import gc
import gzip
import socket
from contextlib import aclosing
from typing import Any

import httpx
import pytest

from app.domain.messages import Message
from app.domain.tools import ToolSpec
from app.domain.usage import Usage
from app.providers.base import CallsReady, Finish, ModelRequest, TextPiece, UsageReport
from tests.mock_model import ModelServer
from tests.providers.conftest import Connect
from tests.providers.reading import BOUND, chunk, collect, failing, stream, text_of

REQUEST = ModelRequest("m-1", (Message("user", "hi"),))
WEATHER = ModelRequest("m-1", (Message("user", "how is the weather?"),), tools=(ToolSpec("get_weather", "tells it"),))


async def test_an_answer_streams_to_its_end(server: ModelServer, connect: Connect) -> None:
    server.script({"steps": [{"text": "a"}, {"text": "b"}, {"usage": {"prompt": 4, "completion": 2}}]})

    events = await collect(connect().stream(REQUEST))

    assert events == [
        TextPiece("a"),
        TextPiece("b"),
        UsageReport(Usage(4, 2)),
        Finish("stop", "stop", "m-1", "chatcmpl-mock"),
    ]


async def test_a_text_is_given_while_the_server_still_answers(server: ModelServer, connect: Connect) -> None:
    server.script({"steps": [{"text": "first"}, {"hang": True}]})

    async with asyncio.timeout(BOUND), aclosing(connect().stream(REQUEST)) as events:
        assert await anext(events) == TextPiece("first")


async def test_calls_in_pieces_arrive_whole(connect: Connect) -> None:
    events = await collect(connect().stream(WEATHER))

    assert next(event for event in events if isinstance(event, CallsReady)).calls[0].arguments == {"city": "Berlin"}


async def test_connections_are_used_again(server: ModelServer, connect: Connect) -> None:
    provider = connect()

    for _ in range(5):
        await collect(provider.stream(REQUEST))

    assert server.seen.connections == 1


async def test_cookies_are_not_kept(server: ModelServer, connect: Connect) -> None:
    server.script({"headers": {"set-cookie": "session=of-one-caller; Path=/"}, "steps": [{"text": "a"}]})
    provider = connect()

    for _ in range(2):
        await collect(provider.stream(REQUEST))

    assert "cookie" not in server.seen.requests[1]["headers"]


async def test_closing_the_stream_closes_the_socket(server: ModelServer, connect: Connect) -> None:
    server.script({"steps": [{"text": "a"}, {"hang": True}]})

    async with aclosing(connect().stream(REQUEST)) as events:
        await anext(events)
    async with asyncio.timeout(30):
        assert await server.closed() == [0]


@pytest.mark.parametrize("steps", [[{"text": "a"}, {"hang": True}], [{"hang": True}]])
async def test_cancelling_the_reader_closes_the_socket_while_the_model_is_silent(
    server: ModelServer, connect: Connect, steps: list[dict[str, Any]]
) -> None:
    server.script({"steps": steps})
    stream = connect().stream(REQUEST)

    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        reading = group.create_task(collect(stream))
        await server.requests()
        reading.cancel()
    async with asyncio.timeout(30):
        assert await server.closed() == [0]


@pytest.mark.parametrize(
    ("answer", "reason", "retryable"),
    [
        ({"status": 401, "body": {"error": {"message": "Incorrect API key: sk-test-0123456789"}}}, "auth", False),
        (
            {"status": 429, "headers": {"retry-after": "2"}, "body": {"error": {"message": "slow"}}},
            "rate_limited",
            True,
        ),
        ({"status": 500, "body": {"error": {"message": "oops"}}}, "server", True),
        ({"status": 502, "body": "<html>bad gateway</html>"}, "server", True),
        ({"status": 529, "body": {"error": {"type": "overloaded_error"}}}, "overloaded", True),
        ({"status": 200, "body": "<html>hello</html>"}, "protocol", True),
        ({"status": 200, "body": {"id": "x"}}, "protocol", False),
        ({"steps": [{"raw": "data: {bad\n\n"}], "bare": True}, "protocol", True),
        ({"steps": [{"event": {"error": {"message": "x", "type": "overloaded_error"}}}]}, "overloaded", True),
        ({"steps": [{"eof": True}]}, "truncated", True),
        ({"steps": [{"done": True}], "bare": True}, "server", True),
        ({"steps": [{"reset": True}]}, "transport", True),
        ({"steps": [{"cut": True}]}, "transport", True),
    ],
)
async def test_a_failure_before_output_has_its_reason_and_the_next_request_works(
    server: ModelServer, connect: Connect, answer: dict[str, Any], reason: str, *, retryable: bool
) -> None:
    server.script(answer)
    provider = connect()

    events, error = await failing(provider.stream(REQUEST))

    assert events == []
    assert (error.reason, error.retryable, error.after_output) == (reason, retryable, False)
    assert error.retry_after == (2.0 if reason == "rate_limited" else None)
    assert "sk-test" not in repr(error)
    assert text_of(await collect(provider.stream(REQUEST))) == "You said: hi"


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ({"reset": True}, "transport"),
        ({"cut": True}, "transport"),
        ({"eof": True}, "truncated"),
        ({"raw": "data: {bad\n\n"}, "protocol"),
        ({"event": {"error": {"message": "x"}}}, "server"),
    ],
)
async def test_a_failure_after_output_says_so_and_tells_the_bill(
    server: ModelServer, connect: Connect, ending: dict[str, Any], reason: str
) -> None:
    server.script({"steps": [{"text": "a"}, {"usage": {"prompt": 4, "completion": 1}}, {"wait": 0.05}, ending]})

    events, error = await failing(connect().stream(REQUEST))

    assert events == [TextPiece("a"), UsageReport(Usage(4, 1))]
    assert (error.reason, error.after_output, error.usage) == (reason, True, Usage(4, 1))


@pytest.mark.parametrize("ending", [{"reset": True}, {"cut": True}, {"eof": True}])
async def test_a_connection_that_drops_after_the_finish_reason_is_no_failure(
    server: ModelServer, connect: Connect, ending: dict[str, Any]
) -> None:
    server.script({"steps": [{"text": "a"}, {"finish": "stop"}, {"wait": 0.05}, ending], "bare": True})

    assert (await collect(connect().stream(REQUEST)))[-1] == Finish("stop", "stop", "m-1", "chatcmpl-mock")


async def test_nobody_at_the_address_is_told_without_the_path(connect: Connect) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]

        _, error = await failing(connect(f"http://127.0.0.1:{port}/secret/v1").stream(REQUEST))

    assert (error.reason, error.retryable) == ("connect", True)
    assert f"http://127.0.0.1:{port};" in error.message
    assert "secret" not in error.message


async def test_a_name_that_does_not_resolve_is_a_failure_to_connect(connect: Connect) -> None:
    _, error = await failing(connect("http://nobody.invalid/v1").stream(REQUEST))

    assert error.reason == "connect"


async def test_a_peer_that_hangs_up_on_the_request_is_a_broken_connection(connect: Connect) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as peer:
        port = peer.sockets[0].getsockname()[1]
        _, error = await failing(connect(f"http://127.0.0.1:{port}/v1").stream(REQUEST))

    assert error.reason == "transport"


async def test_a_peer_that_never_answers_runs_into_the_first_deadline(server: ModelServer, connect: Connect) -> None:
    server.script({"steps": [{"hang": True}]})

    events, error = await failing(connect(first_event_seconds=0.5).stream(REQUEST))

    assert (events, error.reason, error.retryable) == ([], "timeout", True)
    assert await server.closed() == [0]


@pytest.mark.parametrize("step", [{"raw": ": keep-alive\n\n"}, {"raw": ": keep"}])
async def test_comments_do_not_keep_a_silent_model_alive(
    server: ModelServer, connect: Connect, step: dict[str, Any]
) -> None:
    server.script({"steps": [{"text": "a"}, *[step, {"wait": 0.05}] * 60, {"hang": True}]})

    events, error = await failing(connect(idle_seconds=0.3).stream(REQUEST))

    assert events == [TextPiece("a")]
    assert (error.reason, error.after_output) == ("timeout", True)


async def test_an_event_that_comes_slowly_is_waited_for(server: ModelServer, connect: Connect) -> None:
    text = '{"choices":[{"delta":{"content":"' + "x" * 8 + '"}}]}'
    pieces = [{"raw": piece} for piece in ("data: ", *text, "\n\n")]
    server.script({"steps": [{"text": "a"}, *[step for piece in pieces for step in (piece, {"wait": 0.03})]]})

    assert text_of(await collect(connect(idle_seconds=0.8).stream(REQUEST))) == "axxxxxxxx"


async def test_a_tail_that_does_not_come_ends_a_whole_answer(server: ModelServer, connect: Connect) -> None:
    server.script({"steps": [{"text": "a"}, {"finish": "stop"}, {"hang": True}]})

    events = await collect(connect(tail_seconds=0.1).stream(REQUEST))

    assert events[-1] == Finish("stop", "stop", "m-1", "chatcmpl-mock")


async def test_a_peer_that_stays_open_after_the_end_is_left_soon(server: ModelServer, connect: Connect) -> None:
    server.script({"steps": [{"text": "a"}, {"finish": "stop"}, {"done": True}, {"hang": True}]})

    assert text_of(await collect(connect(drain_seconds=0.1).stream(REQUEST))) == "a"
    assert await server.closed() == [0]


async def test_a_peer_that_talks_on_after_the_end_is_not_listened_to(server: ModelServer, connect: Connect) -> None:
    noise = {"raw": ": noise\n\n" * 40_000}
    server.script({"steps": [{"text": "a"}, {"finish": "stop"}, {"done": True}, {"text": "late"}, *[noise] * 8]})
    provider = connect(drain_seconds=BOUND)

    assert text_of(await collect(provider.stream(REQUEST))) == "a"
    assert text_of(await collect(provider.stream(REQUEST))) == "You said: hi"


async def test_compressed_events_are_read_although_nobody_asked_for_them(server: ModelServer, connect: Connect) -> None:
    packed = gzip.compress(stream(chunk({"content": "zipped"}), chunk({}, "stop")))
    server.script({"headers": {"content-encoding": "gzip"}, "steps": [{"raw": packed}], "bare": True})

    assert text_of(await collect(connect().stream(REQUEST))) == "zipped"


async def test_more_streams_than_a_clients_default_allows_run_at_a_time(server: ModelServer, connect: Connect) -> None:
    server.script(*[{"steps": [{"text": "a"}, {"wait": 0.2}]}] * 150)
    provider = connect()

    async def read() -> str:
        async with aclosing(provider.stream(REQUEST)) as events:
            return text_of([event async for event in events])

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        streams = [group.create_task(read()) for _ in range(150)]

    assert {one.result() for one in streams} == {"a"}
    assert server.seen.connections == 150


@pytest.mark.parametrize("calls", [100, pytest.param(1000, marks=pytest.mark.slow)])
async def test_cancelled_calls_leave_no_task_and_no_socket_behind(
    server: ModelServer, connect: Connect, calls: int
) -> None:
    provider = connect()
    before = len(asyncio.all_tasks())

    async def leave_early() -> None:
        async with aclosing(provider.stream(REQUEST)) as events:
            await anext(events)

    for begin in range(0, calls, 50):
        server.script(*[{"steps": [{"text": "a"}, {"hang": True}]}] * 50)
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            for _ in range(50):
                group.create_task(leave_early())
        await server.closed(begin + 50)
    await server.idle()

    assert len(asyncio.all_tasks()) <= before
    assert text_of(await collect(provider.stream(REQUEST))) == "You said: hi"


async def test_what_was_asked_is_not_held_while_the_answer_comes(server: ModelServer, connect: Connect) -> None:
    server.script({"steps": [{"text": "a"}, {"hang": True}]})
    asked = ModelRequest("m-held", (Message("user", "a long conversation"),))

    async with asyncio.timeout(BOUND), aclosing(connect().stream(asked)) as events:
        await anext(events)
        gc.collect()
        there = gc.get_objects()
        requests = [
            each for each in there if isinstance(each, httpx.Request) and str(each.url).startswith(server.base_url)
        ]
        bodies = [each for each in there if type(each) is dict and each.get("model") == "m-held" and "messages" in each]

    assert requests == []
    assert len(bodies) == 1  # the server's own
