"""The gateway: attempts, other models, bills, deadlines, places, health."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from app.domain.errors import ProviderError, ProviderUnavailableError
from app.domain.usage import Usage
from app.providers.attempts import AttemptFailed, GatewayEvent, Serving
from app.providers.base import CallsReady, CallStarted, Finish, ProviderEvent, ReasoningPiece, TextPiece, UsageReport
from app.providers.calls import HttpPolicy
from app.providers.chat import ChatProvider
from app.providers.gateway import Gateway, GatewayPolicy, Route
from app.providers.http import ModelHttp
from app.providers.registry import ProviderRegistry
from app.providers.scripted import Hold, Split, call
from tests.mock_model import ModelServer
from tests.providers.gating import ALONE, REQUEST, ROUTE, Stage, broken
from tests.providers.reading import BOUND


async def test_a_good_answer_is_passed_through_with_who_serves_it() -> None:
    stage = Stage([[Usage(3), "a", Usage(3, 1), call("f", id="c")]])

    events, error = await stage.ask()

    assert error is None
    assert events == [
        Serving(0, "one", "m1"),
        UsageReport(Usage(3)),
        TextPiece("a"),
        UsageReport(Usage(3, 1)),
        CallsReady((call("f", id="c"),)),
        Finish("tool_calls"),
    ]
    assert stage.one.requests[0].model == "m1"


@pytest.mark.parametrize("first", [ReasoningPiece("hm"), TextPiece("a"), CallsReady((call("f", id="c"),))])
async def test_after_the_first_text_reasoning_or_call_nothing_is_tried_again(first: ProviderEvent) -> None:
    stage = Stage([[first, Usage(3, 1), broken("overloaded")]])

    events, error = await stage.ask()

    assert events == [
        Serving(0, "one", "m1"),
        first,
        UsageReport(Usage(3, 1)),
        AttemptFailed(Usage(3, 1), 0, "one", "m1"),
    ]
    assert isinstance(error, ProviderError)
    assert (error.reason, error.after_output, error.usage) == ("overloaded", True, None)


async def test_an_attempt_that_fails_before_output_leaves_no_trace_but_its_bill() -> None:
    stage = Stage([[Usage(3), Usage(4), broken("overloaded")], "answer"])

    events, error = await stage.ask()

    assert error is None
    assert events == [
        AttemptFailed(Usage(4), 0, "one", "m1"),
        Serving(0, "one", "m1"),
        TextPiece("answer"),
        Finish("stop"),
    ]


@pytest.mark.parametrize("bill", [None, Usage()])
async def test_an_attempt_that_was_not_billed_is_not_reported(bill: Usage | None) -> None:
    events, _ = await Stage([[broken("overloaded", usage=bill)], "answer"]).ask()

    assert not [event for event in events if isinstance(event, AttemptFailed)]


async def test_the_bill_comes_before_the_next_model_answers_and_once() -> None:
    stage = Stage([[broken("auth", usage=Usage(5))]], ["answer"])

    events, error = await stage.ask()

    assert error is None
    assert events == [
        AttemptFailed(Usage(5), 0, "one", "m1"),
        Serving(1, "two", "m2"),
        TextPiece("answer"),
        Finish("stop"),
    ]


async def test_the_bill_comes_before_the_error_when_nobody_is_left() -> None:
    stage = Stage([[broken("auth", usage=Usage(5))]], [[broken("quota", usage=Usage(6))]])

    events, error = await stage.ask()

    assert events == [AttemptFailed(Usage(5), 0, "one", "m1"), AttemptFailed(Usage(6), 1, "two", "m2")]
    assert isinstance(error, ProviderError)
    assert (error.reason, error.usage) == ("quota", None)


async def test_the_same_model_is_asked_again_with_growing_waits_and_then_the_next() -> None:
    stage = Stage([[broken("overloaded")]] * 3, ["answer"])

    events, error = await stage.ask()

    assert error is None
    assert stage.waits == [0.5, 1.0]
    assert events[0] == Serving(1, "two", "m2")
    assert [(record.hop, record.attempt, record.outcome) for record in stage.records] == [
        (0, 1, "failed"),
        (0, 2, "failed"),
        (0, 3, "failed"),
        (1, 1, "delivered"),
    ]


@pytest.mark.parametrize("reason", ["auth", "quota", "content_filter", "protocol"])
async def test_what_does_not_heal_is_not_asked_again_but_another_model_is(reason: str) -> None:
    stage = Stage([[broken(reason)]], ["answer"])

    assert (await stage.ask())[1] is None
    assert stage.waits == []


@pytest.mark.parametrize("reason", ["invalid_request", "context_length"])
async def test_a_request_that_is_at_fault_itself_goes_nowhere_else(reason: str) -> None:
    stage = Stage([[broken(reason)]])

    _, error = await stage.ask()

    assert isinstance(error, ProviderError)
    assert (error.reason, stage.two.requests) == (reason, [])


@pytest.mark.parametrize(("told", "waits"), [(0.0, [0.0]), (7.0, [7.0]), (20.0, [20.0])])
async def test_the_wait_that_a_provider_asks_for_is_kept(told: float, waits: list[float]) -> None:
    stage = Stage([[broken("rate_limited", retry_after=told)], "answer"])

    assert (await stage.ask())[1] is None
    assert stage.waits == waits


@pytest.mark.parametrize("told", [21.0, 3600.0, float("inf")])
async def test_a_wait_over_the_cap_means_the_next_model_at_once(told: float) -> None:
    stage = Stage([[broken("rate_limited", retry_after=told)]], ["answer"])

    assert (await stage.ask())[1] is None
    assert stage.waits == []


async def test_no_wait_goes_past_the_deadline() -> None:
    stage = Stage([[broken("rate_limited", retry_after=15.0)]], total_seconds=10.0)

    _, error = await stage.ask(ALONE)

    assert isinstance(error, ProviderError)
    assert (error.reason, stage.waits) == ("rate_limited", [])


async def test_the_fallbacks_of_the_policy_hold_unless_the_route_has_its_own() -> None:
    stage = Stage([[broken("auth")]], ["answer"], fallbacks=("nobody:x", "one:m1", "two:m2"))
    events, error = await stage.ask(Route("one:m1"))
    assert error is None
    assert events[0] == Serving(3, "two", "m2")

    stage = Stage([[broken("auth")]], fallbacks=("two:m2",))
    assert (await stage.ask(ALONE))[1] is not None


async def test_a_first_model_that_nobody_serves_is_told_at_once() -> None:
    _, error = await Stage().ask(Route("nobody:x", fallbacks=("two:m2",)))

    assert isinstance(error, ProviderUnavailableError)


async def test_the_callers_key_goes_to_its_provider_and_the_extra_body_to_the_first_model_alone() -> None:
    stage = Stage([[broken("auth")]], ["answer"])

    await stage.ask(replace(ROUTE, api_keys={"one": "sk-own-key"}))

    first, second = stage.one.requests[0], stage.two.requests[0]
    assert (first.api_key, second.api_key) == ("sk-own-key", None)
    assert (first.extra_body, second.extra_body) == ({"seed": 1}, {})
    assert "sk-own-key" not in repr(replace(ROUTE, api_keys={"one": "sk-own-key"}))


async def test_a_model_with_an_open_circuit_is_passed_over() -> None:
    stage = Stage([[broken("server")]] * 5, ["a", "b", "c"])
    await stage.ask()
    await stage.ask()
    assert len(stage.one.requests) == 5

    events, error = await stage.ask()

    assert error is None
    assert events[0] == Serving(1, "two", "m2")
    assert len(stage.one.requests) == 5


async def test_when_every_circuit_is_open_that_is_told_with_the_time_that_is_left() -> None:
    stage = Stage([[broken("server")]] * 5, attempts=5)
    await stage.ask(ALONE)

    _, error = await stage.ask(ALONE)

    assert isinstance(error, ProviderUnavailableError)
    assert error.details == {"provider": "one", "retry_after": 60}


async def test_a_circuit_is_probed_by_one_request_after_its_cooldown() -> None:
    hold = Hold()
    stage = Stage([*[[broken("server")]] * 5, [hold, "well again"], "and again"], attempts=5)
    await stage.ask(ALONE)
    stage.seconds += 60

    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        probe = group.create_task(stage.ask(ALONE))
        await hold.reached.wait()
        assert isinstance((await stage.ask(ALONE))[1], ProviderUnavailableError)
        hold.release()
    assert TextPiece("well again") in probe.result()[0]
    assert TextPiece("and again") in (await stage.ask(ALONE))[0]


@pytest.mark.parametrize("reason", ["auth", "quota"])
async def test_a_model_alone_that_was_refused_for_key_or_credit_is_asked_all_the_same(reason: str) -> None:
    stage = Stage([[broken(reason)], "set right"])
    await stage.ask(ALONE)

    assert (await stage.ask(ALONE))[1] is None


async def test_a_callers_bad_key_closes_nothing_for_the_others() -> None:
    stage = Stage([[broken("auth")], "answer"])
    await stage.ask(replace(ALONE, api_keys={"one": "bad"}))

    events, error = await stage.ask()

    assert error is None
    assert events[0] == Serving(0, "one", "m1")


async def test_a_callers_key_is_tried_although_the_services_own_was_refused() -> None:
    stage = Stage([[broken("auth")], "answer"], ["fallback"])
    await stage.ask()

    events, _ = await stage.ask(replace(ROUTE, api_keys={"one": "good"}))

    assert events[0] == Serving(0, "one", "m1")


async def test_a_reader_that_leaves_is_recorded_and_counts_against_nobody() -> None:
    stage = Stage([["a", Hold()]])

    async with aclosing(stage.gateway.stream(ALONE, REQUEST)) as events:
        await anext(events)
        await anext(events)

    assert [(record.outcome, record.reason) for record in stage.records] == [("abandoned", None)]


async def test_only_so_many_requests_are_with_a_provider_at_a_time() -> None:
    hold = Hold()
    stage = Stage([["a", hold]], admitted=1, admission_seconds=0.05)

    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        first = group.create_task(stage.ask(ALONE))
        await hold.reached.wait()
        _, refused = await stage.ask(ALONE)
        hold.release()

    assert isinstance(refused, ProviderError)
    assert (refused.reason, refused.retryable, len(stage.one.requests)) == ("overloaded", False, 1)
    assert first.result()[1] is None


async def test_a_place_is_given_back_by_a_reader_that_leaves() -> None:
    stage = Stage([["a", Hold()], "b"], admitted=1)

    async with aclosing(stage.gateway.stream(ALONE, REQUEST)) as events:
        await anext(events)

    assert TextPiece("b") in (await stage.ask(ALONE))[0]


# Over sockets --------------------------------------------------------------------------------------------------------


async def served(
    server: ModelServer, transport: Any, route: Route, **policy: Any
) -> AsyncGenerator[GatewayEvent, None]:
    http = ModelHttp(HttpPolicy(transport=transport, verify_tls=False))
    registry = ProviderRegistry([ChatProvider("mock", server.base_url, "sk-test-0123456789", http)], http=http)
    try:
        async with aclosing(Gateway(registry, GatewayPolicy(**policy)).stream(route, REQUEST)) as events:
            async for event in events:
                yield event
    finally:
        await registry.aclose()


async def test_an_overload_inside_a_success_and_a_429_are_tried_again_over_sockets(
    server: ModelServer, transport: str
) -> None:
    overloaded = {"event": {"error": {"type": "overloaded_error", "message": "x"}}}
    role = {"event": {"choices": [{"delta": {"role": "assistant"}}], "usage": {"prompt_tokens": 8}}}
    server.script({"steps": [role, overloaded]}, {"status": 429, "headers": {"retry-after": "0"}, "body": {}})

    events = [event async for event in served(server, transport, Route("mock:m"), backoff_seconds=0.01)]

    assert events[:3] == [AttemptFailed(Usage(8), 0, "mock", "m"), Serving(0, "mock", "m"), TextPiece("You said: hi")]
    assert len(server.seen.requests) == 3


async def test_another_model_answers_for_one_that_is_down_over_sockets(server: ModelServer, transport: str) -> None:
    server.script(*[{"status": 503, "body": "down"}] * 2, model="first")

    route = Route("mock:first", fallbacks=("mock:second",))
    events = [event async for event in served(server, transport, route, attempts=2, backoff_seconds=0.01)]

    assert events[:2] == [Serving(1, "mock", "second"), TextPiece("You said: hi")]


async def test_an_answer_that_dribbles_past_the_total_deadline_ends_over_sockets(
    server: ModelServer, transport: str
) -> None:
    server.script({"steps": [{"text": "a"}, {"wait": 0.02}] * 500})

    with pytest.raises(ProviderError, match=r"did not finish its answer within 1 seconds") as caught:
        [event async for event in served(server, transport, Route("mock:m"), total_seconds=1.0)]

    assert (caught.value.reason, caught.value.after_output, caught.value.retryable) == ("timeout", True, False)
    assert await server.closed() == [0]


async def test_a_call_that_has_begun_is_output_so_nobody_else_is_asked_when_it_breaks_off() -> None:
    begun = Split(call("get_weather", {"city": "Berlin"}, id="a"), broken=True)
    stage = Stage([[begun, broken("transport")]], ["other"])

    events, error = await stage.ask()

    assert isinstance(error, ProviderError)
    assert error.after_output
    assert events[:2] == [Serving(0, "one", "m1"), CallStarted(0, "get_weather", "a")]
    assert (len(stage.one.requests), len(stage.two.requests)) == (1, 0)
    assert stage.records[0].first_output_seconds is not None
