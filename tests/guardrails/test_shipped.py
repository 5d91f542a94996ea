"""The guards that ship and measure or ask, and how all of them are made from settings."""

from typing import Any

import pytest

from app.domain.errors import ConfigurationError
from app.domain.persona import Persona
from app.domain.usage import ModelCall
from app.guardrails.base import Action, Evaluation, GuardContext, OutputChunk, Spent
from app.guardrails.options import GuardOptions, GuardrailSettings
from app.guardrails.registry import Guards
from app.guardrails.rules.ceiling import Ceiling
from app.guardrails.rules.grounding import SHOWN, Grounding
from app.guardrails.rules.moderation import Moderation
from app.guardrails.shipped import Means, build_guards, installed
from app.guardrails.terms import Ceilings
from app.providers.moderation import Verdict
from tests.guardrails.acting import CONTEXT, final, piece, turn_of

# Ceilings -----------------------------------------------------------------------------------------------------------


def spending(tokens: int, dollars: float) -> GuardContext:
    return GuardContext("ada", "s", spent=lambda: Spent(tokens, dollars))


@pytest.mark.parametrize(
    ("ceilings", "chunk", "beyond"),
    [
        (Ceilings(reply_characters=10), piece("12345", before=5), False),
        (Ceilings(reply_characters=10), piece("123456", before=5), True),
        (Ceilings(reply_characters=10), final("12345678901"), True),
        (Ceilings(tokens=99), final("x"), True),
        (Ceilings(tokens=100), final("x"), False),
        (Ceilings(dollars=0.4), final("x"), True),
        (Ceilings(dollars=0.4), OutputChunk("tool_call_request", None), True),
        (Ceilings(dollars=0.4), OutputChunk("error", None), False),
        (Ceilings(), final("x" * 100_000), False),
    ],
)
def test_what_goes_beyond_a_ceiling_is_blocked(
    ceilings: Ceilings,
    chunk: OutputChunk,
    beyond: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    said = Ceiling(ceilings).evaluate_output(spending(100, 0.5), chunk, ())
    assert (said is not None) == beyond


def test_an_input_has_a_ceiling_too() -> None:
    guard = Ceiling(Ceilings(input_characters=5))
    assert guard.evaluate_input(CONTEXT, turn_of("12345")) is None
    said = guard.evaluate_input(CONTEXT, turn_of("123456"))
    assert said is not None
    assert said.reason == "The input takes more than the 5 characters that are allowed."


# Moderation and grounding -------------------------------------------------------------------------------------------


async def judged_by(opinion: Verdict, **options: Any) -> Evaluation | None:
    async def ask(text: str) -> Verdict:
        assert text == "a text"
        return opinion

    guard = Moderation(ask, **options)
    said = await guard.evaluate_output(CONTEXT, final("a text"), ())
    assert said == await guard.evaluate_input(CONTEXT, turn_of("a text"))
    return said


async def test_what_the_endpoint_objects_to_is_blocked_with_its_categories() -> None:
    said = await judged_by(Verdict(flagged=True, categories=("hate",), scores={"hate": 0.91234, "sexual": 0.1}))
    assert said is not None
    assert (said.action, said.reason_code) == (Action.BLOCK, "MODERATION_FLAGGED")
    assert said.metadata == {"categories": ["hate"], "scores": {"hate": 0.912}}


async def test_categories_that_are_not_asked_for_do_not_count() -> None:
    hate = Verdict(flagged=True, categories=("hate",), scores={})
    assert await judged_by(hate, categories=["violence"]) is None
    assert await judged_by(Verdict(flagged=False, categories=(), scores={})) is None
    flagged = await judged_by(hate, action="flag")
    assert flagged is not None
    assert flagged.action is Action.FLAG


async def test_nothing_is_asked_about_no_text() -> None:
    async def ask(text: str) -> Verdict:
        raise AssertionError(text)

    assert await Moderation(ask).evaluate_output(CONTEXT, final(None), ()) is None


SOURCES = [{"id": "1", "content": "Berlin has 3.9 million inhabitants."}]


async def grounded(answer: str, sources: Any = SOURCES, chunk: OutputChunk | None = None, **options: Any) -> Any:
    asked: list[str] = []

    async def ask(context: GuardContext, prompt: str, given: str) -> str:
        asked.append(given)
        return answer

    guard = Grounding(ask, **options)
    said = await guard.evaluate_output(CONTEXT, chunk or final("Berlin has 3.9 million."), sources)
    return said, asked


async def test_a_reply_is_judged_against_its_sources() -> None:
    said, [asked] = await grounded('Sure: {"score": 1, "unsupported": 0}')
    assert said is None
    assert "3.9 million inhabitants" in asked
    assert "Berlin has 3.9 million." in asked
    said, _ = await grounded('{"score": 0.5, "unsupported": 2}', action="block")
    assert (said.action, said.reason_code) == (Action.BLOCK, "NOT_GROUNDED")
    assert said.metadata == {"score": 0.5, "unsupported": 2}


async def test_without_sources_or_a_whole_reply_no_judge_is_asked() -> None:
    assert await grounded("-", sources=()) == (None, [])
    assert await grounded("-", chunk=piece("Berlin")) == (None, [])
    assert await grounded("-", chunk=final(None)) == (None, [])


@pytest.mark.parametrize("answer", ["", "I think so", '{"score": "high"}', "[1]"])
async def test_an_answer_that_is_no_verdict_is_a_failure_of_the_guard(answer: str) -> None:
    with pytest.raises(ValueError, match=r"verdict|JSON|Expecting|EOF"):
        await grounded(answer)


async def test_of_many_sources_the_first_are_shown() -> None:
    many = [{"id": str(number), "content": "x" * 1000} for number in range(100)]
    _, [asked] = await grounded('{"score": 1}', sources=many)
    assert '"id":"0"' in asked
    assert len(asked) < SHOWN + 2000


# All of them --------------------------------------------------------------------------------------------------------


async def no_opinion(text: str) -> Verdict:
    raise NotImplementedError(text)


async def no_judge(context: GuardContext, prompt: str, given: str) -> str:
    raise NotImplementedError(prompt)


MEANS = Means(no_opinion, no_judge)


def guards_of(personas: dict[str, list[str]] | None = None, **settings: Any) -> Guards:
    named = [name for names in (personas or {}).values() for name in names]
    guards = build_guards(GuardrailSettings(**settings), MEANS, named=named)
    for name, names in (personas or {}).items():
        guards.check_persona(Persona(name, name, "-", guardrails=tuple(names)))
    return guards


def test_by_themselves_there_are_no_guards() -> None:
    assert guards_of().active() == ()
    assert not any(guard.has("output") for guard in guards_of().active())


def test_guards_judge_in_the_order_of_the_setting_and_patterns_bring_topics() -> None:
    assert [guard.id for guard in guards_of(guardrails=["secrets", "pii"]).active()] == ["secrets", "pii"]
    assert [guard.id for guard in guards_of(guardrail_deny_patterns=["x"], guardrails=["pii"]).active()] == [
        "topics", "pii",
    ]  # fmt: skip
    assert [guard.id for guard in guards_of({"p": ["pii"]}).active(["pii"])] == ["pii"]


@pytest.mark.parametrize(
    ("settings", "personas", "says"),
    [
        ({"guardrails": ["nonesuch"]}, {}, "FERMATA_GUARDRAILS names .* nonesuch"),
        ({}, {"poet": ["nonesuch"]}, "persona 'poet' names .* nonesuch"),
        ({"required_guardrails": [{"id": "pii"}]}, {}, "'pii' is not active"),
        ({"guardrails": ["secrets"], "required_guardrails": [{"id": "secrets"}]}, {}, "does not judge input"),
    ],
)
def test_what_can_not_be_is_said_at_the_start(settings: Any, personas: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        guards_of(personas, **settings)


def test_options_that_there_are_not_are_refused() -> None:
    with pytest.raises(ValueError, match="extra"):
        GuardOptions.model_validate({"pii": {"kindz": []}})


class Brought:
    def evaluate_input(self, context: GuardContext, turn: object) -> None:
        """Allow everything."""


class Broken:
    def __init__(self) -> None:
        message = "no licence"
        raise RuntimeError(message)


def test_an_installed_package_brings_guards_by_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"brought": Brought, "broken": Broken}

    class Point:
        def __init__(self, name: str) -> None:
            self.name, self.value = name, f"a.package:{name}"

        def load(self) -> Any:
            return points[self.name]

    found = [Point("brought"), Point("broken")]
    assert list(installed(["brought"], found)) == ["brought"]  # type: ignore[arg-type]
    assert installed([], found) == {}  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"'broken' of a\.package:broken can't be loaded: .*no licence"):
        installed(["broken"], found)  # type: ignore[arg-type]
    monkeypatch.setattr("app.guardrails.shipped.entry_points", lambda **_: found)
    [guard] = guards_of(guardrails=["brought"]).active()
    assert guard.id == "brought"
    assert guard.has("input")


def test_calls_are_forgotten_where_nobody_keeps_the_books() -> None:
    CONTEXT.on_call(ModelCall("judge", 0, 0, 0, "p", "m", "delivered"))
    assert CONTEXT.spent() == Spent()
