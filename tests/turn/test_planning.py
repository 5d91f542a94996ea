"""Turn planning: which tools are offered, what a prompt tells, what a request may ask, and how planning fails."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import ConfigurationError, UnavailableError
from app.domain.overrides import OverridesChange
from app.domain.planning import Capability, PlanningPolicy, overview, wish
from app.domain.tools import ToolSpec
from app.domain.turn import TurnOptions
from app.providers.scripted import call
from app.turn.preparation.planner import Asked, Planner
from app.turn.preparation.ranking import by_meaning, by_words, fused, words
from tests.databases import rows
from tests.gmi.keeping import persona, prompt
from tests.requirements import requirement
from tests.skills.making import write_skill
from tests.stage import ADA, CHAT, STOCK, WEATHER, Stage, one, result, running_stage

MAIL = ToolSpec("sendEmail", "Sends an e-mail to somebody")
PLANNED: dict[str, Any] = {"turn_planning": {}}
AWAY: dict[str, Any] = {
    "turn_planning": {"ranking": "embeddings", "retry_ms": 0},
    "embedding_model": "openai:embed",
}
"""No server embeds here, so that discovery fails."""


def offered(stage: Stage) -> list[str]:
    return [tool.name for tool in stage.provider.requests[-1].tools]


def planning(chunks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Give what the routing block tells of the plan."""
    (found,) = [c["updates"]["turn_planning"] for c in chunks if "turn_planning" in c.get("updates", {})]
    return dict(found)


def lives(chunks: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    told = [c["updates"]["execution_lifecycle"] for c in chunks if "execution_lifecycle" in c.get("updates", {})]
    return [(life["phase"], life["status"]) for life in told]


# Ranking ------------------------------------------------------------------------------------------------------------


def test_texts_are_ranked_by_the_rare_words_they_share_with_the_query() -> None:
    texts = ["tell the weather of a city", "tell the price of a share", "send mail to a city hall", ""]
    assert by_words("What's the weather like in this city?", texts) == [0, 2]
    assert by_words("What is it to you?", texts) == []
    assert by_words("weather", []) == []


def test_names_are_taken_apart_and_a_plural_finds_its_singular() -> None:
    assert words("getWeatherForecasts, send_e-mail: Boss") == [
        "get",
        "weather",
        "forecast",
        "send",
        "e",
        "mail",
        "boss",
    ]


def test_rankings_are_joined_and_what_is_not_alike_is_not_found_by_meaning() -> None:
    assert by_meaning([1.0, 0.0], [[0.0, 1.0], [0.9, 0.1], [0.5, 0.5], [1.0], [0.0, 0.0]]) == [1, 2]
    assert fused([2, 1], [1, 3]) == [1, 2, 3]


# The planner --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ({}, ("fail_open", "discovered", "any", None, True)),
        ({"failMode": " Closed ", "toolSelectionMode": "Full"}, ("fail_closed", "all", "any", None, True)),
        ({"tool_failure_mode": "open", "failMode": "closed"}, ("fail_open", "discovered", "any", None, True)),
        ({"tool-selection": "all", "capability_kind": "skill"}, ("fail_open", "discovered", "skill", None, True)),
        ({"capabilityDiscoveryKind": "spell"}, ("fail_open", "discovered", "any", None, True)),
        ({"capability_category": " Office "}, ("fail_open", "discovered", "any", "office", True)),
        ({"capabilityDiscovery": False}, ("fail_open", "discovered", "any", None, False)),
        ({"enableCapabilityDiscovery": "no", "toolFailureMode": 3}, ("fail_open", "discovered", "any", None, True)),
    ],
)  # fmt: skip
def test_a_turns_flags_are_read_over_the_policy(flags: dict[str, Any], found: tuple[Any, ...]) -> None:
    wanted = wish(PlanningPolicy(), flags, "fail_open")
    assert (wanted.failure_mode, wanted.selection, wanted.kind, wanted.category, wanted.discovery) == found
    closed = wish(PlanningPolicy(allow_request_overrides=False), {"failMode": "closed"}, "fail_open")
    assert closed.failure_mode == "fail_open"


def tools(*names: str) -> list[Capability]:
    return [Capability("tool", name, name, name) for name in names]


async def plan_of(planner: Planner, query: str, capabilities: Sequence[Capability], **flags: Any) -> Any:
    return await planner.plan(Asked(query, wish(planner.policy, flags, planner.policy.failure_mode), capabilities))


async def test_a_try_that_fails_is_made_again_and_then_the_turn_fails_open_or_closed() -> None:
    tried = []

    async def away(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        tried.append(len(texts))
        raise UnavailableError

    planner = Planner(PlanningPolicy(retry_seconds=0), away)
    plan = await plan_of(planner, "weather", tools("weather", "mail"))
    assert (len(tried), plan.attempts, plan.selection, plan.fallback_reason) == (2, 2, "all", "discovery_failed")
    with pytest.raises(Exception, match="could not be planned") as refused:
        await plan_of(planner, "weather", tools("weather"), tool_failure_mode="fail_closed")
    assert getattr(refused.value, "code", None) == "SYS_PROCESSING_ERROR"


async def test_descriptions_are_embedded_once_and_meaning_finds_what_words_do_not() -> None:
    asked: list[list[str]] = []

    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        asked.append(list(texts))
        return [[1.0, 0.0] if text in {"umbrella?", "weather"} else [0.0, 1.0] for text in texts]

    planner = Planner(PlanningPolicy(), embed)
    for _ in range(2):
        plan = await plan_of(planner, "umbrella?", tools("weather", "mail"))
        assert plan.selected == ("weather",)
    assert asked == [["umbrella?", "weather", "mail"], ["umbrella?"]]


async def test_what_is_found_has_a_most_and_tells_in_full_only_the_first_of_what_is_no_tool() -> None:
    skills = [Capability("skill", f"s{n}", "tidy", "tidy up", "home", full=f"Do {n}." + "x" * 5000) for n in range(9)]
    plan = await plan_of(Planner(PlanningPolicy()), "tidy", [*skills, *tools("mail")])
    assert [one.name for one in plan.found] == ["s0", "s1", "s2", "s3", "s4"]
    assert plan.selection == "all"
    assert plan.entries[0] == "home: 9 (s0, s1, s2, s3, …); tool: 1 (mail)"
    assert [len(entry) > 1000 for entry in plan.entries[1:]] == [True, True, False, False, False]
    assert plan.to_json(None)["discovery"]["fallback_reason"] == "no_tool_matches"
    assert overview([]) == ""


# Whole turns --------------------------------------------------------------------------------------------------------


async def test_without_planning_every_tool_is_offered_and_nothing_is_planned(stage: Stage) -> None:
    stage.provider.add("Hello.")
    chunks = await stage.play("What is the weather?", tools=[WEATHER, STOCK])
    assert offered(stage) == ["current_time", "get_weather", "get_stock"]
    assert [c["updates"]["turn_planning"] for c in chunks if "turn_planning" in c.get("updates", {})] == [None]
    assert lives(chunks) == [("planned", "ok"), ("executing", "ok"), ("completed", "ok")]


@requirement("R250")
async def test_a_planned_turn_offers_the_tools_that_fit_and_tells_the_plan(shared_database: str) -> None:
    async with running_stage(shared_database, **PLANNED) as stage:
        stage.provider.add("Rain.", "Hello.", "Hello.")
        chunks = await stage.play("How is the weather?", tools=[WEATHER, STOCK, MAIL])
        plan = planning(chunks)

        assert offered(stage) == ["get_weather"]
        assert "- get_weather (tool): Tell the weather of a city" in prompt(stage)
        assert plan["policy"]["tool_selection_mode"] == "discovered"
        assert plan["discovery"]["selected_tool_names"] == ["get_weather"]
        assert plan["diagnostics"]["discovery_attempts"] == 1
        assert plan["discovery"]["token_estimate"] > 0
        assert lives(chunks) == [("planned", "ok"), ("executing", "ok"), ("completed", "ok")]

        chunks = await stage.play("Hi!", tools=[WEATHER, STOCK])
        assert offered(stage) == ["current_time", "get_weather", "get_stock"]
        assert planning(chunks)["discovery"]["fallback_reason"] == "no_tool_matches"
        assert lives(chunks) == [
            ("planned", "ok"),
            ("degraded", "degraded"),
            ("executing", "degraded"),
            ("recovered", "ok"),
            ("completed", "ok"),
        ]
        all_tools = TurnOptions(custom_flags={"toolSelectionMode": "all"})
        await stage.play("Weather?", tools=[WEATHER, STOCK], options=all_tools)
        assert offered(stage) == ["current_time", "get_weather", "get_stock"]


async def test_tools_that_are_always_offered_and_those_that_the_gate_refuses(shared_database: str) -> None:
    async with running_stage(shared_database, turn_planning={"always": ["current_time"]}) as stage:
        stage.provider.add("Hello.", "Hello.")
        await stage.play("The weather, please.", tools=[WEATHER, STOCK])
        assert offered(stage) == ["current_time", "get_weather"]
        gated = TurnOptions(tool_gate={"deny": ["get_weather"]})
        chunks = await stage.play("The weather or the price of a share?", tools=[WEATHER, STOCK], options=gated)
        assert planning(chunks)["discovery"]["selected_tool_names"] == ["get_stock"]


async def test_a_continuation_offers_what_its_turn_was_offered(shared_database: str) -> None:
    async with running_stage(shared_database, **PLANNED) as stage:
        stage.provider.add([call("get_weather", {"city": "Berlin"}, id="c1")], "Sunny.")
        chunks = await stage.play("The weather, please.", tools=[WEATHER, STOCK])
        await stage.pass_results(one(chunks, "tool_call_request")["stream_id"], result("c1"))
        assert offered(stage) == ["get_weather"]


async def test_skills_are_found_and_told_unless_they_are_off_or_told_anyhow(
    shared_database: str, tmp_path: Path
) -> None:
    for name in ("tidy", "tidy-fast", "tidy-slow"):
        write_skill(tmp_path, name, f"Do {name}.")
    async with running_stage(shared_database, skills_dir=tmp_path, **PLANNED) as stage:
        stage.provider.add("Hello.", "Hello.")
        change = OverridesChange(enable_skills=("tidy-fast",), disable_skills=("tidy-slow",))
        await stage.runtime.change_session_overrides(ADA, CHAT, change)
        chunks = await stage.play("Tidy my room.", tools=[WEATHER])
        assert planning(chunks)["discovery"]["found"] == ["skill:tidy"]
        assert "- tidy (skill): What tidy is for.\nDo tidy." in prompt(stage)
        assert prompt(stage).count("Do tidy-fast.") == 1
        assert "Do tidy-slow." not in prompt(stage)
        only = TurnOptions(custom_flags={"capability_kind": "tool"})
        chunks = await stage.play("Tidy my room.", tools=[WEATHER], options=only)
        assert planning(chunks)["discovery"]["found"] == []


@requirement("R250")
async def test_a_plan_that_fails_closed_ends_the_turn_and_nothing_of_it_is_stored(
    shared_database: str, tmp_path: Path
) -> None:
    own = persona(tmp_path, tool_failure_mode="fail_closed")
    async with running_stage(shared_database, **AWAY, **own) as stage:
        chunks = await stage.play("The weather, please.", tools=[WEATHER])
        assert [(chunk["type"], chunk["code"]) for chunk in chunks] == [("error", "SYS_PROCESSING_ERROR")]
        assert await rows(shared_database, "SELECT 1 FROM conversations") == []
        stage.provider.add("Hello.")
        opened = TurnOptions(tool_failure_mode="fail_open")
        chunks = await stage.play("The weather, please.", tools=[WEATHER], options=opened)
        assert planning(chunks)["discovery"]["fallback_reason"] == "discovery_failed"
        assert offered(stage) == ["get_weather"]


async def test_a_plan_that_fails_leaves_a_held_pause_alone(shared_database: str) -> None:
    async with running_stage(shared_database, **AWAY) as stage:
        stage.provider.add([call("get_weather", {"city": "Berlin"}, id="c1")], "Sunny.")
        chunks = await stage.play("Weather?", tools=[WEATHER])
        closed = TurnOptions(tool_failure_mode="fail_closed")
        assert one(await stage.play("Stocks?", options=closed), "error")["code"] == "SYS_PROCESSING_ERROR"
        await stage.pass_results(one(chunks, "tool_call_request")["stream_id"], result("c1"))


async def test_ranking_by_embeddings_without_a_model_for_it_is_refused_at_the_start(shared_database: str) -> None:
    with pytest.raises(ConfigurationError, match="FERMATA_EMBEDDING_MODEL"):
        async with running_stage(shared_database, turn_planning={"ranking": "embeddings"}):
            pass


async def test_of_a_very_long_input_the_beginning_is_looked_at(shared_database: str) -> None:
    async with running_stage(shared_database, **PLANNED) as stage:
        stage.provider.add("Hello.")
        chunks = await stage.play("The price of a share? " + "x " * 6000 + "weather", tools=[WEATHER, STOCK])
        assert planning(chunks)["discovery"]["selected_tool_names"] == ["get_stock"]
