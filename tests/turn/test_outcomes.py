"""Task outcomes: how a turn's end is judged, what windows come to, when that is told, and what a plan makes of it."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.domain.clock import SystemClock
from app.domain.outcomes import (
    AdaptivePolicy,
    Ended,
    Sample,
    TelemetryPolicy,
    adapted,
    alert,
    kpi,
    outcome_of,
    read_samples,
    scope_key,
)
from app.domain.planning import Plan
from app.domain.turn import Caller, TurnOptions
from app.providers.scripted import Hold, call
from app.store.database import Database
from app.telemetry.outcomes import Outcomes
from app.turn.preparation.setting import AdaptiveSetting, TaskOutcomeSetting
from tests.databases import rows
from tests.gmi.rig import broken
from tests.gmi.test_session_replicas import until_blocked
from tests.stage import ADA, STOCK, WEATHER, one, result, running_stage
from tests.turn.test_planning import lives, offered, planning

NOW = datetime(2026, 11, 30, tzinfo=UTC)
LONG = "It will rain in the morning and the sun comes out at noon."


@pytest.mark.parametrize(
    ("ended", "status", "score"),
    [
        (Ended("x" * 48), "success", 0.95),
        (Ended(" " * 9 + "x" * 48, degraded=True), "success", 0.85),
        (Ended("x" * 47 + " "), "partial", 0.6),
        (Ended("Yes.", degraded=True), "partial", 0.5),
        (Ended(None, calls=1), "partial", 0.6),
        (Ended("  "), "failed", 0.1),
        (Ended("x" * 48, failed=True), "failed", 0.0),
    ],
)
def test_an_outcome_is_what_the_end_looks_like(ended: Ended, status: str, score: float) -> None:
    found = outcome_of(ended, {})
    assert (found.status, found.score, found.source) == (status, score, "heuristic")


@pytest.mark.parametrize(
    ("flag", "status", "score"),
    [
        (True, "success", 1.0),
        (False, "failed", 0.0),
        (0.7, "success", 0.7),
        (0.69, "partial", 0.69),
        (0.29, "failed", 0.29),
        (7, "success", 1.0),
        (" Done ", "success", 1.0),
        ("error", "failed", 0.0),
        ("mixed", "partial", 0.5),
    ],
)
def test_a_requests_flag_says_how_it_went(flag: Any, status: str, score: float) -> None:
    for name in ("taskOutcome", "task_outcome"):
        found = outcome_of(Ended(None, failed=True), {name: flag})
        assert (found.status, found.score, found.source) == (status, score, "request_override")


@pytest.mark.parametrize("flag", ["perhaps", None, [], float("nan")])
def test_a_flag_that_says_nothing_known_is_let_be(flag: Any) -> None:
    assert outcome_of(Ended("x" * 48), {"task_outcome": flag}).source == "heuristic"


def test_the_defaults_are_those_that_are_promised() -> None:
    told = TaskOutcomeSetting().policy()
    assert told == TelemetryPolicy(100, "organization_persona", True, 0.55, 8, 60.0)
    assert AdaptiveSetting().policy() == AdaptivePolicy(True, 5, 0.7, True, True)


def test_a_scope_names_what_is_counted_together() -> None:
    assert scope_key("global", "acme", "p") == "global"
    assert scope_key("organization", "", "p") == "org:none"
    assert scope_key("organization_persona", "acme", None) == "org:acme:persona:unknown"


def window(*scores: float) -> list[Sample]:
    return [
        Sample(NOW + timedelta(seconds=place), "success" if score >= 0.7 else "failed", score)
        for place, score in enumerate(scores)
    ]


def test_a_stored_window_is_read_without_what_can_not_be_read() -> None:
    good = [sample.to_json() for sample in window(0.1, 0.9)]
    stored = [good[1], {**good[0], "score": 7}, {"score": 1}, None, {**good[0], "status": "odd"}, "x", good[0]]
    assert [sample.score for sample in read_samples(stored, 10)] == [1.0, 0.1, 0.9]
    assert [sample.score for sample in read_samples(stored, 1)] == [0.9]


def test_an_alert_comes_with_enough_samples_below_the_threshold_and_is_critical_far_below() -> None:
    policy = TelemetryPolicy()
    warned = alert(kpi("k", policy, window(*[0.5] * 8), NOW), policy)
    assert warned is not None
    assert (warned["severity"], warned["value"], warned["sample_count"]) == ("warning", 0.5, 8)
    critical = alert(kpi("k", policy, window(*[0.3] * 8), NOW), policy)
    assert critical is not None
    assert critical["severity"] == "critical"
    assert alert(kpi("k", policy, window(*[0.3] * 7), NOW), policy) is None
    assert alert(kpi("k", policy, window(*[0.55] * 8), NOW), policy) is None
    assert (
        alert(kpi("k", TelemetryPolicy(alerts=False), window(*[0.3] * 8), NOW), TelemetryPolicy(alerts=False)) is None
    )


@pytest.mark.parametrize(
    ("scores", "plan", "selection", "mode", "actions"),
    [
        ([0.1] * 5, Plan("fail_closed", "discovered"), "all", "fail_open", ["forced_all_tools", "forced_fail_open"]),
        ([0.1] * 4, Plan("fail_closed", "discovered"), "discovered", "fail_closed", []),
        ([0.7] * 5, Plan("fail_closed", "discovered"), "discovered", "fail_closed", []),
        ([0.1] * 5, Plan("fail_closed", "all", asked_closed=True), "all", "fail_closed", []),
        ([0.1] * 5, Plan("fail_open", "all"), "all", "fail_open", []),
    ],
)
def test_a_plan_is_made_more_careful_while_turns_do_badly(
    scores: list[float], plan: Plan, selection: str, mode: str, actions: list[str]
) -> None:
    new, shown = adapted(plan, kpi("k", TelemetryPolicy(), window(*scores), NOW), AdaptivePolicy())
    assert (new.selection, new.failure_mode, shown["actions"]) == (selection, mode, actions)
    assert shown["preserved_fail_closed"] == plan.asked_closed
    assert (new.fallback_reason is not None) == bool(actions)


# Windows in Postgres ------------------------------------------------------------------------------------------------


async def test_windows_of_two_processes_are_joined_and_bounded(shared_database: str) -> None:
    database = Database(shared_database)
    policy = TelemetryPolicy(window=10)
    one_, two = (Outcomes(database, SystemClock(), policy) for _ in range(2))
    good, bad = outcome_of(Ended("x" * 48), {}), outcome_of(Ended(None, failed=True), {})
    for _ in range(6):
        one_.note("k", good)
        two.note("k", bad)
    await asyncio.gather(one_.flush(), two.flush())
    await one_.flush()

    third = Outcomes(database, SystemClock(), policy)
    found = await third.kpi_of("k")
    assert (found.sample_count, found.window_size) == (10, 10)
    assert found.success_count + found.failed_count == 10
    assert found.success_count >= 4
    assert (await third.kpi_of("other")).sample_count == 0
    await database.close()


async def test_what_was_just_being_written_when_the_process_ends_is_written_all_the_same(shared_database: str) -> None:
    database = Database(shared_database)
    outcomes = Outcomes(database, SystemClock(), TelemetryPolicy())
    good = outcome_of(Ended("x" * 48), {})
    outcomes.note("k", good)
    await outcomes.flush()
    async with asyncio.timeout(30):
        async with database.transaction() as connection:
            await connection.driver.execute("SELECT 1 FROM task_outcome_windows FOR UPDATE")
            outcomes.note("k", good)
            running = asyncio.create_task(outcomes.run())
            await until_blocked(database)
            running.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await running

    assert (await Outcomes(database, SystemClock(), TelemetryPolicy()).kpi_of("k")).sample_count == 2
    await database.close()


async def test_an_outcome_counts_at_once_here_and_once_it_is_written_it_still_counts_once(shared_database: str) -> None:
    database = Database(shared_database)
    outcomes = Outcomes(database, SystemClock(), TelemetryPolicy())
    good = outcome_of(Ended("x" * 48), {})
    assert [outcomes.note("k", good)[0].sample_count for _ in range(2)] == [1, 2]
    assert (await outcomes.kpi_of("k")).sample_count == 2
    await outcomes.flush()
    assert (await outcomes.kpi_of("k")).sample_count == 2
    assert outcomes.note("k", good)[0].sample_count == 3
    await database.close()


async def test_a_process_remembers_a_bounded_number_of_windows(
    shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.telemetry.outcomes.MOST_SCOPES", 2)
    database = Database(shared_database)
    outcomes = Outcomes(database, SystemClock(), TelemetryPolicy())
    for scope in "abc":
        outcomes.note(scope, outcome_of(Ended("x" * 48), {}))
    await outcomes.flush()
    assert list(outcomes._windows) == ["b", "c"]
    assert [(await outcomes.kpi_of(scope)).sample_count for scope in "abc"] == [1, 1, 1]
    await database.close()


async def test_an_alert_is_told_once_in_its_cool_down(shared_database: str) -> None:
    database = Database(shared_database)
    outcomes = Outcomes(database, SystemClock(), TelemetryPolicy())
    bad = outcome_of(Ended(None, failed=True), {})
    alerts = [outcomes.note("k", bad)[1] for _ in range(20)]
    assert [place for place, told in enumerate(alerts) if told] == [7]
    eager = Outcomes(database, SystemClock(), TelemetryPolicy(alert_cooldown=0, alert_samples=1))
    assert all(eager.note("k", bad)[1] for _ in range(3))
    await database.close()


async def test_what_can_not_be_written_is_kept_for_the_next_time(shared_database: str) -> None:
    away = Database("postgresql://fermata@127.0.0.1:1/none")
    outcomes = Outcomes(away, SystemClock(), TelemetryPolicy())
    outcomes.note("k", outcome_of(Ended("x" * 48), {}))
    await outcomes.flush()
    assert (await outcomes.kpi_of("k")).sample_count == 1
    outcomes._database = Database(shared_database)
    await outcomes.flush()
    assert len(await rows(shared_database, "SELECT samples FROM task_outcome_windows")) == 1
    await outcomes._database.close()
    await away.close()


# Whole turns --------------------------------------------------------------------------------------------------------


def told(chunks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [chunk["updates"] for chunk in chunks if "task_outcome" in chunk.get("updates", {})]
    return dict(found)


async def test_each_finished_turn_tells_its_outcome_and_a_pause_tells_none(shared_database: str) -> None:
    async with running_stage(shared_database, task_outcome_telemetry={}) as stage:
        stage.provider.add(LONG, [call("get_weather", {"city": "Berlin"}, id="c1")], "Sunny.", [broken()], "Ok.")
        first = await stage.play("Hello")
        assert told(first)["task_outcome"]["status"] == "success"
        assert told(first)["task_outcome_kpi"]["scope_key"] == "org:none:persona:demo"
        assert told(first)["task_outcome_alert"] is None
        paused = await stage.play("Weather?", tools=[WEATHER])
        assert not any("task_outcome" in chunk.get("updates", {}) for chunk in paused)
        went_on = await stage.pass_results(one(paused, "tool_call_request")["stream_id"], result("c1"))
        assert told(went_on)["task_outcome"]["status"] == "partial"
        failed = await stage.play("Hello", caller=Caller("ada", "acme"))
        assert told(failed)["task_outcome"]["score"] == 0
        assert told(failed)["task_outcome_kpi"]["scope_key"] == "org:acme:persona:demo"
        assert lives(failed)[-1] == ("errored", "error")
        flagged = await stage.play("Hi", options=TurnOptions(custom_flags={"task_outcome": "failed"}))
        assert told(flagged)["task_outcome"] == {
            "status": "failed",
            "score": 0.0,
            "reason": "flag",
            "source": "request_override",
        }
        assert told(flagged)["task_outcome_kpi"]["sample_count"] == 3


async def test_a_turn_that_somebody_cancels_is_not_counted(shared_database: str) -> None:
    async with running_stage(shared_database, task_outcome_telemetry={}) as stage:
        stage.provider.add(["Well, ", Hold()])
        turn = stage.turn("Hello")
        chunks = [await anext(turn)]
        await stage.runtime.cancel(ADA, chunks[0]["stream_id"])
        chunks += [chunk async for chunk in turn]
        assert not any("task_outcome" in chunk.get("updates", {}) for chunk in chunks)


async def test_outcomes_of_before_make_the_plan_more_careful_on_another_process(shared_database: str) -> None:
    settings: dict[str, Any] = {"task_outcome_telemetry": {}, "turn_planning": {}}
    bad = TurnOptions(custom_flags={"task_outcome": False})
    async with running_stage(shared_database, **settings) as stage:
        stage.provider.add(*["No."] * 5)
        for _ in range(5):
            await stage.play("The weather, please.", tools=[WEATHER, STOCK], options=bad)
        assert offered(stage) == ["get_weather"]
    async with running_stage(shared_database, **settings) as stage:
        stage.provider.add("No.", "No.")
        chunks = await stage.play("The weather, please.", tools=[WEATHER, STOCK])
        assert offered(stage) == ["current_time", "get_weather", "get_stock"]
        assert planning(chunks)["adaptive_execution"]["actions"] == ["forced_all_tools"]
        assert planning(chunks)["discovery"]["fallback_reason"] == "adaptive_execution"
        assert ("degraded", "degraded") in lives(chunks)
        # Another organization has a window of its own.
        await stage.play("The weather, please.", tools=[WEATHER, STOCK], caller=Caller("eve", "acme"))
        assert offered(stage) == ["get_weather"]


async def test_with_telemetry_off_nothing_is_counted(shared_database: str) -> None:
    async with running_stage(shared_database) as stage:
        stage.provider.add(LONG)
        chunks = await stage.play("Hello")
        assert not any("task_outcome" in chunk.get("updates", {}) for chunk in chunks)
    assert await rows(shared_database, "SELECT 1 FROM task_outcome_windows") == []
