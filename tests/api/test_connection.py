"""What a connection is sent by clients that few servers are tried with, and what they get for it."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from uvicorn.server import ServerState

from app.api.connection import Connection
from app.domain.turn import TurnInput
from tests.api.fake_runtime import FRAMES, FakeRuntime
from tests.api.serving import PATIENCE, application, served

PATH = "/v1/conversations/c/turns"
OFFER = (
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
)
"""What Java's client offers with its first request."""

LIMIT = 1 << 20
MOST_SHARED = 30
"""Objects of a class share a table of so many names; one that has more takes a kilobyte for its own."""

Talk = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def talking(runtime: FakeRuntime) -> AsyncIterator[Talk]:
    """Connect to a server, without any client between its bytes and the test."""
    async with served(application(runtime)) as port, asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield reader, writer
        finally:
            writer.close()


def head(method: str, path: str, more: str = "", *, length: int = 0, version: str = "1.1") -> bytes:
    told = f"Content-Type: application/json\r\nContent-Length: {length}\r\n" if length else ""
    return f"{method} {path} HTTP/{version}\r\nHost: localhost\r\n{told}{more}\r\n".encode()


def post(text: str, more: str = "", version: str = "1.1") -> bytes:
    body = json.dumps({"input": text}).encode()
    return head("POST", PATH, more, length=len(body), version=version) + body


def turns(runtime: FakeRuntime) -> list[TurnInput]:
    """Give the turns that were started."""
    return [asked for asked in runtime.asked if isinstance(asked, TurnInput)]


def said(runtime: FakeRuntime) -> list[object]:
    """Give what was said in them."""
    return [turn.input for turn in turns(runtime)]


async def until_end(reader: asyncio.StreamReader) -> bytes:
    """Read a response in chunks to its end."""
    return await reader.readuntil(b"\r\n0\r\n\r\n")


async def test_a_stream_over_http_1_0_has_no_chunks_and_ends_with_the_connection(runtime: FakeRuntime) -> None:
    async with talking(runtime) as (reader, writer):
        writer.write(post("Hello", version="1.0"))
        told, _, content = (await reader.read()).partition(b"\r\n\r\n")

    assert told.startswith(b"HTTP/1.1 200 ")
    assert b"transfer-encoding" not in told.lower()
    assert b"connection: close" in told.lower()
    assert content == b"".join(FRAMES)


async def test_the_object_form_over_http_1_0_is_the_object(runtime: FakeRuntime) -> None:
    async with talking(runtime) as (reader, writer):
        writer.write(post("Hello", "Accept: application/json\r\n", version="1.0"))
        _, _, content = (await reader.read()).partition(b"\r\n\r\n")

    assert json.loads(content)["stream_id"] == "st_1"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_what_has_a_length_tells_it_over_http_1_0_as_well(method: str, runtime: FakeRuntime) -> None:
    async with talking(runtime) as (reader, writer):
        writer.write(head(method, "/healthz", version="1.0"))
        told, _, content = (await reader.read()).partition(b"\r\n\r\n")

    assert b"content-length: 15" in told.lower()
    assert content == (b'{"status":"ok"}' if method == "GET" else b"")


async def test_a_client_that_offers_another_protocol_is_answered_with_its_body_read(runtime: FakeRuntime) -> None:
    async with talking(runtime) as (reader, writer):
        for text in ("one", "two"):
            writer.write(post(text, f"{OFFER}Idempotency-Key: {text}\r\n"))
            answer = await until_end(reader)
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert b"event: end" in answer
        writer.write(post("three"))
        assert (await until_end(reader)).startswith(b"HTTP/1.1 200 ")

    assert said(runtime) == ["one", "two", "three"]
    assert [asked.idempotency_key for asked in turns(runtime)] == ["one", "two", None]


async def test_an_offer_may_come_in_pieces_and_its_body_later(runtime: FakeRuntime) -> None:
    sent = post("in pieces", OFFER)
    async with talking(runtime) as (reader, writer):
        for place in range(0, len(sent), 11):
            writer.write(sent[place : place + 11])
            await writer.drain()
            await asyncio.sleep(0)
        assert (await until_end(reader)).startswith(b"HTTP/1.1 200 ")

    assert said(runtime) == ["in pieces"]


async def test_many_offers_may_come_at_once(runtime: FakeRuntime) -> None:
    many = 99
    last = OFFER.replace("Connection: ", "Connection: close, ")
    async with talking(runtime) as (reader, writer):
        writer.write(head("GET", "/healthz", OFFER) * many + head("GET", "/healthz", last))
        answers = await reader.read()

    assert answers.count(b"HTTP/1.1 200 ") == many + 1


async def test_a_tunnel_is_refused(runtime: FakeRuntime) -> None:
    async with talking(runtime) as (reader, writer):
        writer.write(b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")


LINE = b"X-More: and more\r\n"
ENDLESS = {
    "an address": (b"GET /", b"a" * 1024),
    "a header": (b"GET /healthz HTTP/1.1\r\nX-Long: ", b"a" * 1024),
    "headers": (b"GET /healthz HTTP/1.1\r\n", LINE),
    "trailers": (head("POST", PATH, "Transfer-Encoding: chunked\r\n") + b"2\r\n{}\r\n0\r\n", LINE),
}


class Socket(asyncio.Transport):
    """Remembers what is written until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    async def until(self, what: bytes | None = None) -> None:
        """Wait until something is written, or until it is closed."""
        async with asyncio.timeout(PATIENCE):
            while not (self.is_closing() if what is None else what in self.written):  # noqa: ASYNC110 - see `write`
                await asyncio.sleep(0)

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


@asynccontextmanager
async def on_socket(runtime: FakeRuntime, patience: int = 75) -> AsyncIterator[tuple[Connection, Socket]]:
    """Give a connection on a socket that is none."""
    state, transport = ServerState(), Socket()
    config = uvicorn.Config(application(runtime), log_config=None, ws="none", timeout_keep_alive=patience)
    connection = Connection(config, state, {})
    connection.connection_made(transport)
    try:
        yield connection, transport
    finally:
        connection.connection_lost(None)
        await asyncio.gather(*state.tasks)


async def test_a_connection_has_no_table_of_attributes_for_itself(runtime: FakeRuntime) -> None:
    async with on_socket(runtime) as (connection, transport):
        connection.data_received(head("GET", "/healthz"))
        await transport.until(b"HTTP/1.1 200 ")
        assert len(vars(connection)) <= MOST_SHARED


@pytest.mark.parametrize("what", ENDLESS)
async def test_what_never_ends_is_refused(what: str, runtime: FakeRuntime) -> None:
    begun, more = ENDLESS[what]
    async with on_socket(runtime) as (connection, transport):
        connection.data_received(begun)
        fed = 0
        while not transport.is_closing() and fed < LIMIT:
            connection.data_received(more)
            fed += len(more)

    assert transport.is_closing()
    assert transport.written.startswith(b"HTTP/1.1 431 ")


STOPS = {
    "before it": (b"", b""),
    "in the head": (b"GET /healthz HTTP/1.1\r\nHost: loc", b"HTTP/1.1 408 "),
    "before the body": (head("POST", PATH, length=10), b"HTTP/1.1 408 "),
    "in the body": (head("POST", PATH, length=10) + b'{"in', b"HTTP/1.1 408 "),
}


@pytest.mark.parametrize("where", STOPS)
async def test_a_client_that_stops_in_the_middle_of_a_request_is_not_waited_for(
    where: str, runtime: FakeRuntime
) -> None:
    sent, answer = STOPS[where]
    async with on_socket(runtime, patience=0) as (connection, transport):
        if sent:
            connection.data_received(sent)
        await transport.until()

    assert transport.written.startswith(answer)
    assert bool(transport.written) is bool(answer)


async def test_an_answer_goes_on_although_the_rest_of_what_was_sent_does_not_come(runtime: FakeRuntime) -> None:
    goes_on = asyncio.Event()

    async def frames() -> AsyncIterator[bytes]:
        yield FRAMES[0]
        await goes_on.wait()
        yield FRAMES[2]

    runtime.frames = frames
    async with on_socket(runtime, patience=0) as (connection, transport):
        connection.data_received(post("Hello") + b"GET /healthz HTTP/1.1\r\nHost: loc")
        await transport.until(FRAMES[0])
        connection.data_received(b"alhost\r\n")
        connection.timeout_keep_alive_handler()
        assert not transport.is_closing()
        goes_on.set()
        await transport.until()

    assert FRAMES[2] in transport.written
    assert transport.written.count(b"HTTP/1.1 ") == 2  # the rest of the second request is waited for from here on
    assert b"HTTP/1.1 408 " in transport.written


@pytest.mark.parametrize("begun", [True, False])
async def test_more_requests_than_may_wait_are_refused_and_told_within_no_answer(
    runtime: FakeRuntime,
    begun: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    async def frames() -> AsyncIterator[bytes]:
        yield FRAMES[0]
        await asyncio.Event().wait()

    runtime.frames = frames
    async with on_socket(runtime) as (connection, transport):
        connection.data_received(post("Hello"))
        if begun:
            await transport.until(FRAMES[0])
        connection.data_received(head("GET", "/healthz") * 100)
        assert not transport.is_closing()
        connection.data_received(head("GET", "/healthz"))

    assert transport.is_closing()
    assert (b"More than 100 requests wait" in transport.written) is not begun


async def test_a_head_that_is_long_is_read(runtime: FakeRuntime) -> None:
    async with talking(runtime) as (reader, writer):
        for _ in range(3):
            writer.write(post("Hello", f"X-Long: {'a' * 60_000}\r\n"))
            assert (await until_end(reader)).startswith(b"HTTP/1.1 200 ")


async def test_what_is_no_request_is_not_told_within_the_answer_to_another(runtime: FakeRuntime) -> None:
    goes_on = asyncio.Event()

    async def frames() -> AsyncIterator[bytes]:
        yield FRAMES[0]
        await goes_on.wait()

    runtime.frames = frames
    async with talking(runtime) as (reader, writer):
        writer.write(post("Hello"))
        await reader.readuntil(FRAMES[0])
        writer.write(b"\x00\x00\x00")
        assert await reader.read() == b"\r\n"
        goes_on.set()


async def test_what_is_held_for_a_reader_has_no_queues_that_are_empty(runtime: FakeRuntime) -> None:
    async with on_socket(runtime) as (connection, _):
        connection.data_received(post("Hello"))
        parts = (connection, connection.flow, connection.cycle)
        held = [each for part in parts for each in vars(part).values()]
        events = [each for each in held if isinstance(each, asyncio.Event)]
        queues = [each for each in (*held, *(vars(event)["_waiters"] for event in events)) if isinstance(each, deque)]

    assert len(events) == 2
    assert not queues
