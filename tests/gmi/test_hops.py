"""Hops and the ledger: which model serves, that a turn stays with it, and what is kept of each attempt."""

from app.domain.usage import Hop, Usage
from app.providers.base import ReasoningPiece
from app.providers.facts import ModelFacts, Prices
from app.providers.gateway import Gateway
from app.providers.registry import ProviderRegistry
from app.providers.scripted import call
from app.tools.executor import ToolExecutor
from app.turn.gmi.instance import RuntimeGmi
from tests.gmi.rig import HOST_TOOL, Echo, Rig, broken, letters


async def test_later_steps_stay_with_the_model_that_served() -> None:
    rig = Rig(
        [[broken("server")]],
        [[call("echo", id="c1")], ["Done."]],
        tools=[Echo()],
        fallbacks=("two:m2",),
    )

    chunks, output = await rig.run()

    assert letters(chunks) == "C S R T S M"
    assert len(rig.one.requests) == 1
    assert output.hop == Hop(1, "two", "m2")


async def test_a_turn_begins_with_the_model_that_served_before_its_pause() -> None:
    rig = Rig([], [["Done."]], fallbacks=("two:m2",))

    _, output = await rig.run(hop=Hop(1, "two", "m2"))

    assert (rig.one.requests, output.hop) == ([], Hop(1, "two", "m2"))


async def test_every_attempt_is_in_the_ledger_with_its_step_its_bill_and_how_it_ended() -> None:
    rig = Rig(
        [[broken("server", Usage(7, 0))], [broken("overloaded")], [broken("invalid_request")]],
        [[call("echo", id="c1"), Usage(5, 1)], ["Done.", Usage(9, 2)]],
        tools=[Echo()],
        fallbacks=("two:m2",),
    )

    await rig.run()

    told = [(made.step, made.hop, made.provider, made.outcome, made.reason, made.usage) for made in rig.calls]
    assert told == [
        (0, 0, "one", "failed", "server", Usage(7, 0)),
        (0, 1, "two", "delivered", None, Usage(5, 1)),
        (1, 1, "two", "delivered", None, Usage(9, 2)),
    ]
    assert not any(made.estimated for made in rig.calls)


async def test_usage_that_the_provider_does_not_tell_is_an_estimate_that_says_so() -> None:
    rig = Rig([["A short answer."]])

    _, output = await rig.run()

    (made,) = rig.calls
    assert made.estimated
    assert made.usage.prompt_tokens > 4
    assert made.usage.completion_tokens >= 3
    assert output.usage == Usage()


async def test_a_failure_before_any_answer_is_not_estimated() -> None:
    rig = Rig([[broken("server")]])

    await rig.run()

    assert [(made.outcome, made.usage, made.estimated) for made in rig.calls] == [("failed", Usage(), False)]


async def test_a_price_that_is_known_gives_the_cost() -> None:
    rig = Rig([["Hi", Usage(1_000_000, 100_000)]])
    facts = {"one:m1": ModelFacts(prices=Prices(2.0, 10.0))}
    gateway = Gateway(ProviderRegistry([rig.one], facts=facts))
    rig.gmi = RuntimeGmi("gmi-1", gateway, ToolExecutor(rig.tools, timeout=5))

    await rig.run()

    assert rig.calls[0].cost == 3.0


async def test_reasoning_stays_with_its_message_for_the_model_that_thought_it() -> None:
    rig = Rig(
        [[ReasoningPiece("Hm. "), ReasoningPiece("Yes.", "sig"), call("echo", id="c1")], ["Done."]], tools=[Echo()]
    )

    await rig.run()

    assistant = rig.one.requests[1].messages[-2]
    assert assistant.metadata == {
        "reasoning": [{"text": "Hm. Yes.", "signature": "sig", "after": 0, "provider": "one", "model": "m1"}]
    }


async def test_reasoning_is_in_the_history_that_a_pause_keeps() -> None:
    rig = Rig([[ReasoningPiece("Hm.", "sig"), call("get_weather", id="c1")]])

    _, output = await rig.run(host_tools=(HOST_TOOL,))

    assert (output.history[-1].metadata or {})["reasoning"][0]["signature"] == "sig"
