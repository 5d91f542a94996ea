"""Where a route begins, and who is told of its attempts."""

from contextlib import aclosing

import pytest

from app.domain.errors import ProviderUnavailableError
from app.domain.usage import Hop, Usage
from app.providers.attempts import AttemptRecord
from app.providers.gateway import Route
from tests.providers.gating import REQUEST, ROUTE, Stage, broken


@pytest.mark.parametrize(
    ("start", "asked"),
    [
        (Hop(1, "two", "m2"), ["two:m2", "one:m3"]),
        (Hop(5, "two", "gone"), ["two:gone"]),
        (Hop(1, "two", "gone"), ["two:gone", "one:m3"]),
        (Hop(0, "one", "m1"), ["one:m1", "two:m2", "one:m3"]),
    ],
)
async def test_a_route_goes_on_from_the_hop_that_served_before(start: Hop, asked: list[str]) -> None:
    stage = Stage([[broken("auth")]] * 2, [[broken("auth")]])

    await stage.ask(Route("one:m1", fallbacks=("two:m2", "one:m3"), start=start))

    assert [f"{record.provider}:{record.model}" for record in stage.records] == asked


async def test_an_attempt_is_told_to_its_own_caller_too() -> None:
    stage, told = Stage([[broken("auth")]], [["answer", Usage(3, 1)]]), list[AttemptRecord]()

    async with aclosing(stage.gateway.stream(ROUTE, REQUEST, told.append)) as events:
        async for _ in events:
            pass

    assert told == stage.records
    assert [(record.outcome, record.usage) for record in told] == [("failed", None), ("delivered", Usage(3, 1))]


async def test_a_route_is_checked_without_asking_anybody() -> None:
    stage = Stage()
    stage.gateway.check(ROUTE)
    with pytest.raises(ProviderUnavailableError):
        stage.gateway.check(Route("nobody:x"))
    assert stage.records == []
