"""The text of a quick model is read together; nothing else waits, and nothing waits for what does not come."""

import asyncio
import gc
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, nullcontext
from typing import Any

import aiohttp
import pytest

from app.domain.errors import ProviderError
from app.domain.messages import Message
from app.providers.base import Finish, ModelRequest, ProviderEvent, ReasoningPiece, TextPiece
from app.providers.calls import HttpPolicy
from app.providers.chat import ChatProvider
from app.providers.http import ModelHttp
from app.providers.pace import Pace
from app.providers.setup import set_up
from app.settings import Settings
from tests.mock_model import ModelServer

REQUEST = ModelRequest("m-1", (Message("user", "Go on."),))
BOUND = 30.0
EVER = 3600.0
TEXT = [TextPiece("a")]
SMALL = 250


@asynccontextmanager
async def reading(server: ModelServer, gather: float) -> AsyncIterator[AsyncGenerator[ProviderEvent, None]]:
    """Read an answer of the server's with a client that gathers for so many seconds."""
    http = ModelHttp(HttpPolicy(verify_tls=False, gather_seconds=gather))
    try:
        async with (
            asyncio.timeout(BOUND),
            aclosing(ChatProvider("mock", server.base_url, None, http).stream(REQUEST)) as events,
        ):
            yield events
    finally:
        await http.aclose()


async def rest_of(events: AsyncGenerator[ProviderEvent, None]) -> list[str]:
    """Give the pieces of text to the end, which has to come."""
    told = [event async for event in events]
    assert any(isinstance(event, Finish) for event in told)
    return [event.text for event in told if isinstance(event, TextPiece)]


def paced(seconds: float) -> tuple[Pace, Callable[[], None]]:
    ends: list[Callable[[], None]] = []
    pace = Pace(seconds, ends.append)
    return pace, ends[0]


async def test_an_answer_that_is_waited_for_holds_no_head_and_no_empty_queue(server: ModelServer) -> None:
    server.script({"steps": [{"text": "On"}, {"gate": "1"}, {"text": " it goes."}]})
    async with reading(server, 0.0) as events:
        assert await anext(events) == TextPiece("On")
        (answer,) = [each for each in gc.get_objects() if type(each) is aiohttp.ClientResponse and each.connection]
        body: Any = answer.content
        connection: Any = answer.connection
        queues = (body._buffer, body._http_chunk_splits, connection.protocol._buffer)
        assert [type(queue) for queue in queues if isinstance(queue, deque)] == []
        assert [head for head in (answer.headers, answer.raw_headers) if head is not None] == []
        server.open("1")
        assert await rest_of(events) == [" it goes."]


async def test_what_a_quick_model_says_behind_its_first_pieces_is_told_as_one(server: ModelServer) -> None:
    server.script(
        {
            "steps": [
                {"text": "On"},
                {"gate": "1"},
                {"text": "ce"},
                {"gate": "2"},
                *({"text": piece} for piece in "abcd"),
            ]
        }
    )
    async with reading(server, EVER) as events:
        assert await anext(events) == TextPiece("On")
        server.open("1")
        assert await anext(events) == TextPiece("ce")
        server.open("2")

        assert await rest_of(events) == ["abcd"]


async def test_without_gathering_each_piece_is_told_by_itself(server: ModelServer) -> None:
    server.script({"steps": [{"text": piece} for piece in "abcd"]})
    async with reading(server, 0) as events:
        assert await rest_of(events) == ["a", "b", "c", "d"]


async def test_nothing_waits_behind_what_is_no_text(server: ModelServer) -> None:
    thoughts = [step for name in "1234" for step in ({"reasoning": name}, {"gate": name})]
    server.script({"steps": [*thoughts, {"text": "So"}]})
    async with reading(server, EVER) as events:
        for name in "1234":
            assert await anext(events) == ReasoningPiece(name)
            server.open(name)

        assert await rest_of(events) == ["So"]


async def test_what_follows_the_end_of_the_text_is_waited_for_by_nobody(server: ModelServer) -> None:
    text = {"index": 0, "delta": {"content": "b"}, "finish_reason": "stop"}
    last = [{"usage": {"prompt": 1, "completion": 2}}, {"done": True}, {"hang": True}]
    server.script({"steps": [{"text": "a"}, {"gate": "1"}, {"event": {"choices": [text]}}, {"gate": "2"}, *last]})
    async with reading(server, EVER) as events:
        assert await anext(events) == TextPiece("a")
        server.open("1")
        assert await anext(events) == TextPiece("b")
        server.open("2")

        assert await rest_of(events) == []


async def test_a_reader_that_leaves_while_text_gathers_closes_the_socket(server: ModelServer) -> None:
    server.script({"steps": [{"text": "a"}, {"gate": "1"}, {"text": "b"}, {"hang": True}]})
    async with reading(server, EVER) as events:
        assert await anext(events) == TextPiece("a")
        server.open("1")
        assert await anext(events) == TextPiece("b")
        waiting = asyncio.create_task(rest_of(events))
        await asyncio.wait({waiting}, timeout=0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await server.closed(1)


@pytest.mark.parametrize("whole", [True, False])
async def test_what_gathers_is_told_although_the_connection_breaks(server: ModelServer, *, whole: bool) -> None:
    end = [{"finish": "stop"}, {"done": True}] if whole else []
    steps = [{"text": "a"}, {"gate": "1"}, {"text": "b"}, {"gate": "2"}, {"text": "c"}, {"text": "d"}, *end]
    server.script({"steps": [*steps, {"cut": True}], "bare": True})
    async with reading(server, 0.2) as events:
        assert await anext(events) == TextPiece("a")
        server.open("1")
        assert await anext(events) == TextPiece("b")
        server.open("2")
        told: list[ProviderEvent] = []
        with nullcontext() if whole else pytest.raises(ProviderError):
            async for event in events:
                told.append(event)  # noqa: PERF401 - what came before the error counts

    assert "".join(event.text for event in told if isinstance(event, TextPiece)) == "cd"
    assert any(isinstance(event, Finish) for event in told) is whole


async def test_it_rests_until_its_time_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(asyncio.get_running_loop(), "time", lambda: 0.0)
        pace, _ = paced(0.05)
        pace.note(TEXT, SMALL)
        pace.note(TEXT, SMALL)
        assert pace.rests
    async with asyncio.timeout(BOUND):
        await pace.rest()


async def test_it_never_rests_where_the_end_can_not_be_told() -> None:
    pace = Pace(EVER, None)
    pace.note(TEXT, SMALL)
    pace.note(TEXT, SMALL)
    assert not pace.rests


async def test_it_never_rests_behind_as_much_as_the_client_lets_wait() -> None:
    pace, _ = paced(EVER)
    pace.note(TEXT, SMALL)
    pace.note(TEXT * 300, 1 << 16)
    assert not pace.rests


async def test_it_rests_until_the_body_is_whole_and_never_again() -> None:
    pace, end = paced(EVER)
    pace.note(TEXT, SMALL)
    pace.note(TEXT, SMALL)
    resting = asyncio.create_task(pace.rest())
    await asyncio.wait({resting}, timeout=0)
    end()
    async with asyncio.timeout(BOUND):
        await resting
    pace.note(TEXT, SMALL)
    assert not pace.rests


async def test_a_model_that_is_slower_than_readers_see_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    with monkeypatch.context() as patched:
        patched.setattr(asyncio.get_running_loop(), "time", lambda: now)
        pace, _ = paced(0.05)
        told = []
        for gap, pieces in ((0.0, 1), (0.1, 1), (0.04, 1), (0.02, 1), (0.05, 2), (0.05, 1), (0.3, 9), (0.3, 1)):
            now += gap
            pace.note(TEXT * pieces, SMALL)
            told.append(pace.rests)

    assert told == [False, False, False, True, True, False, True, False]


async def test_what_is_no_text_ends_the_rest() -> None:
    pace, _ = paced(EVER)
    pace.note(TEXT, SMALL)
    pace.note(TEXT, SMALL)
    pace.note([ReasoningPiece("b")], SMALL)
    assert not pace.rests


@pytest.mark.parametrize(("given", "seconds"), [({}, 0.075), ({"gather_milliseconds": 0}, 0.0)])
def test_the_setting_tells_how_long_text_gathers(given: dict[str, Any], seconds: float) -> None:
    settings = Settings(_env_file=None, **given)

    assert set_up(settings.models).providers.http.gather_seconds == seconds
