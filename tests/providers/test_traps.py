"""Every trap in every dialect it can occur in: from bytes however they are cut, and over sockets on both transports."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import ProviderError
from app.domain.messages import Message
from app.providers.base import (
    CallPiece,
    CallsReady,
    CallStarted,
    Finish,
    ModelRequest,
    ProviderEvent,
    ReasoningPiece,
    UsageReport,
)
from app.providers.calls import HttpPolicy
from app.providers.http import ModelHttp
from app.providers.provider import HttpProvider
from app.providers.wire import parse_arguments
from tests.mock_model import ModelServer
from tests.providers.conftest import Transport
from tests.providers.reading import outcome, read, text_of
from tests.providers.trap_words import DIALECTS, Told, Trap
from tests.providers.traps import TRAPS

REQUEST = ModelRequest("m-1", (Message("user", "hi"),))


def told_of(events: Sequence[ProviderEvent], error: ProviderError | None) -> Told:
    """Sum up what came, and see that its parts fit together."""
    calls = [call for event in events if isinstance(event, CallsReady) for call in event.calls]
    usage = [event.usage for event in events if isinstance(event, UsageReport)]
    finish = [event.reason for event in events if isinstance(event, Finish)]
    assert len({call.id for call in calls}) == len(calls)
    assert all(call.id and call.name for call in calls)
    assert len(finish) == (0 if error else 1)
    assert not finish or isinstance(events[-1], Finish)
    _check_pieces(events, calls)
    return Told(
        text=text_of(events),
        reasoning="".join(event.text for event in events if isinstance(event, ReasoningPiece)),
        calls=tuple((call.name, None if call.invalid is not None else dict(call.arguments)) for call in calls),
        usage=(error.usage if error is not None else None) or (usage[-1] if usage else None),
        finish=finish[0] if finish else None,
        error=None if error is None else error.reason,
        retryable=None if error is None else error.retryable,
    )


def _check_pieces(events: Sequence[ProviderEvent], calls: Sequence[Any]) -> None:
    """See that each call was begun before it was ready, in order, and that its pieces are its arguments."""
    begun = [event for event in events if isinstance(event, CallStarted)]
    assert [event.place for event in begun] == list(range(len(begun)))
    for number, call in enumerate(calls):
        pieces = [event.text for event in events if isinstance(event, CallPiece) and event.place == number]
        text = "".join(pieces)
        assert begun[number].name == call.name
        assert begun[number].id in {None, call.id}
        assert (parse_arguments(text) if text.strip() not in {"", "null"} else {}) == call.arguments or call.invalid


def from_bytes(trap: Trap, *pieces: bytes) -> Told:
    decoder = trap.dialect.decoder("house", ())
    events, error = read(decoder, *pieces)
    if error is not None:
        error.usage = decoder.usage
    return told_of(events, error)


@pytest.mark.parametrize("name", TRAPS)
def test_what_a_server_sends_is_read_for_what_it_is(name: str) -> None:
    trap = TRAPS[name]

    assert from_bytes(trap, trap.data) == trap.told
    assert from_bytes(trap, *(trap.data[place : place + 1] for place in range(len(trap.data)))) == trap.told


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAPS)
def test_it_is_read_the_same_wherever_the_bytes_are_cut(name: str) -> None:
    trap = TRAPS[name]

    for cut in range(1, len(trap.data)):
        assert from_bytes(trap, trap.data[:cut], trap.data[cut:]) == trap.told


@given(st.data())
def test_it_is_read_the_same_for_any_set_of_cuts(data: st.DataObject) -> None:
    trap = TRAPS[data.draw(st.sampled_from(sorted(TRAPS)))]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(trap.data)), max_size=12)) | {0, len(trap.data)})

    pieces = [trap.data[begin:end] for begin, end in pairwise(cuts)]
    assert from_bytes(trap, *pieces) == trap.told


@pytest.fixture
async def http(transport: Transport) -> AsyncIterator[ModelHttp]:
    client = ModelHttp(HttpPolicy(transport=transport, verify_tls=False, tail_seconds=0.2))
    yield client
    await client.aclose()


@pytest.mark.parametrize("size", [100_000, 11])
async def test_it_is_read_the_same_over_sockets_and_the_next_answer_is_whole(
    server: ModelServer, http: ModelHttp, size: int
) -> None:
    wrong: list[str] = []
    async with asyncio.timeout(120):
        for name, trap in TRAPS.items():
            provider = HttpProvider("house", server.base_url, None, http, dialect=trap.dialect)
            pieces = [trap.data[begin : begin + size] for begin in range(0, len(trap.data), size)]
            server.script({"steps": [{"raw": piece} for piece in pieces], "bare": True})
            told = told_of(*await outcome(provider.stream(REQUEST)))
            if told != trap.told:
                wrong.append(f"{name}: {told}")
        for words in DIALECTS:
            trap = TRAPS[f"{words.name}: a whole answer"]
            provider = HttpProvider("house", server.base_url, None, http, dialect=trap.dialect)
            server.script({"steps": [{"raw": trap.data}], "bare": True})
            assert told_of(*await outcome(provider.stream(REQUEST))) == trap.told

    assert wrong == []
