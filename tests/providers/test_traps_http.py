"""Every dialect over sockets, on both transports: one connection, one request, no secret, and peers that misbehave."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest

from app.domain.messages import Message
from app.providers.base import Finish, ModelRequest
from app.providers.calls import HttpPolicy
from app.providers.http import ModelHttp
from app.providers.provider import HttpProvider
from tests.mock_model import ModelServer
from tests.providers.conftest import Transport
from tests.providers.reading import collect, failing, text_of
from tests.providers.trap_words import DIALECTS, TEXT, Words

REQUEST = ModelRequest("m-1", (Message("user", "hi"),))
KEY = "sk-secret-0123456789"
BOUND = 60.0
Make = Callable[[Words], HttpProvider]


@pytest.fixture
async def make(server: ModelServer, transport: Transport) -> AsyncIterator[Make]:
    policy = HttpPolicy(transport=transport, verify_tls=False, tail_seconds=0.2, event_bytes=20_000)
    http = ModelHttp(policy)
    yield lambda words: HttpProvider("house", server.base_url, KEY, http, dialect=words.dialect)
    await http.aclose()


def whole(words: Words) -> dict[str, Any]:
    return {"steps": [{"raw": words.begin + words.say(TEXT) + words.end("stop")}], "bare": True}


def begun(words: Words, *endings: dict[str, Any]) -> dict[str, Any]:
    return {"steps": [{"raw": words.begin + words.say(TEXT)}, *endings], "bare": True}


async def test_answers_that_follow_one_another_use_one_connection(server: ModelServer, make: Make) -> None:
    for words in DIALECTS:
        provider = make(words)
        for _ in range(3):
            server.script(whole(words))
            assert text_of(await collect(provider.stream(REQUEST))) == TEXT

    assert server.seen.connections == 1


@pytest.mark.parametrize(
    "refusal",
    [
        {"status": 500, "body": {"error": {"message": "oops"}}},
        {"status": 429, "headers": {"retry-after": "0"}, "body": {"error": {"message": "slow"}}},
        {"steps": [{"reset": True}], "bare": True},
        {"steps": [{"cut": True}], "bare": True},
    ],
    ids=["500", "429", "reset", "cut"],
)
async def test_nobody_below_the_gateway_asks_again(server: ModelServer, make: Make, refusal: dict[str, Any]) -> None:
    for number, words in enumerate(DIALECTS, start=1):
        server.script(refusal)
        await failing(make(words).stream(REQUEST))
        assert len(server.seen.requests) == number


async def test_a_key_that_a_server_echoes_is_shown_nowhere(server: ModelServer, make: Make) -> None:
    for words in DIALECTS:
        told = {"error": {"message": f"The key {KEY} is wrong."}}
        for answer in (
            {"status": 401, "body": told},
            {"status": 200, "body": told},
            begun(words, {"raw": words.event(told)}),
            {"steps": [{"raw": f"event: error\ndata: {KEY}\n\n"}], "bare": True},
        ):
            server.script(answer)
            _, error = await failing(make(words).stream(REQUEST))
            assert KEY not in f"{error} {error!r} {error.message} {error.details} {error.__cause__} {error.__context__}"


async def test_an_event_over_the_limit_is_refused_and_the_next_answer_is_whole(server: ModelServer, make: Make) -> None:
    for words in DIALECTS:
        server.script(begun(words, *[{"raw": "data: " + "x" * 9000}] * 4))
        events, error = await failing(make(words).stream(REQUEST))
        assert (text_of(events), error.reason, error.after_output) == (TEXT, "protocol", True)
        server.script(whole(words))
        assert text_of(await collect(make(words).stream(REQUEST))) == TEXT


async def test_a_peer_that_talks_on_after_the_end_is_left_and_the_next_answer_is_whole(
    server: ModelServer, make: Make
) -> None:
    noise = {"raw": ": noise\n\n" * 20_000}
    for words in DIALECTS:
        end = {"raw": words.end("stop")}
        server.script(begun(words, end, *[noise] * 10), whole(words))
        events = await collect(make(words).stream(REQUEST))
        assert (text_of(events), isinstance(events[-1], Finish)) == (TEXT, True)
        assert text_of(await collect(make(words).stream(REQUEST))) == TEXT


async def test_a_peer_that_never_ends_its_whole_answer_is_left(server: ModelServer, make: Make) -> None:
    for number, words in enumerate(DIALECTS, start=1):
        server.script(begun(words, {"raw": words.end("stop")}, {"hang": True}))
        assert text_of(await collect(make(words).stream(REQUEST))) == TEXT
        assert len(await server.closed(number)) == number


@pytest.mark.parametrize("rounds", [3, pytest.param(250, marks=pytest.mark.slow)])
async def test_calls_that_are_left_in_any_state_leave_no_task_and_no_socket(
    server: ModelServer, make: Make, rounds: int
) -> None:
    before = len(asyncio.all_tasks())
    async with asyncio.timeout(BOUND + rounds):
        for number in range(rounds):
            await _leave_four(server, make, number * len(DIALECTS))
        await server.idle()

    assert len(asyncio.all_tasks()) <= before
    for words in DIALECTS:
        server.script(whole(words))
        assert text_of(await collect(make(words).stream(REQUEST))) == TEXT


async def _leave_four(server: ModelServer, make: Make, asked: int) -> None:
    """Leave a call of each dialect: one by closing, one in mid-answer, one while the model is silent, one early."""
    ways = (_close, _cancel_in_answer, _cancel_in_silence, _cancel_early)
    for place, words in enumerate(DIALECTS):
        silent = {"steps": [{"hang": True}], "bare": True}
        way = ways[(asked // len(DIALECTS) + place) % len(ways)]
        server.script(begun(words, {"hang": True}) if way in {_close, _cancel_in_answer} else silent)
        await way(server, make(words), asked + place)
        await server.closed(asked + place + 1)


async def _close(_: ModelServer, provider: HttpProvider, __: int) -> None:
    async with aclosing(provider.stream(REQUEST)) as events:
        await anext(events)


async def _cancel_in_answer(_: ModelServer, provider: HttpProvider, __: int) -> None:
    given = asyncio.Event()

    async def read() -> None:
        async with aclosing(provider.stream(REQUEST)) as events:
            async for _ in events:
                given.set()

    reading = asyncio.create_task(read())
    await given.wait()
    await _cancelled(reading)


async def _cancel_in_silence(server: ModelServer, provider: HttpProvider, asked: int) -> None:
    reading = asyncio.create_task(collect(provider.stream(REQUEST)))
    await server.requests(asked + 1)
    for _ in range(20):  # so that the head of the answer is read, most times
        await asyncio.sleep(0)
    await _cancelled(reading)


async def _cancel_early(server: ModelServer, provider: HttpProvider, asked: int) -> None:
    reading = asyncio.create_task(collect(provider.stream(REQUEST)))
    await server.requests(asked + 1)
    await _cancelled(reading)


async def _cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
