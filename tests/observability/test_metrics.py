"""The counts: what of a running service is told, what is not, and that nothing is loaded unless it is asked for."""

import asyncio
import subprocess
import sys

import pytest

from app.domain.messages import Message
from app.domain.usage import Usage
from app.observability.metrics import OTHER, Counted, Metrics
from app.providers.errors import failure
from app.providers.scripted import Hold, ScriptedProvider, call
from tests.conversation.talking import add
from tests.stage import CHAT, WEATHER, Stage, result, running_stage

PATIENCE = 30


def shown(counts: bytes | None) -> dict[str, float]:
    """Read the lines that are about this service."""
    assert counts is not None
    lines = [line for line in counts.decode().splitlines() if line.startswith("fermata_")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def counts_of(stage: Stage) -> dict[str, float]:
    return shown(stage.runtime.metrics())


async def test_a_turn_that_pauses_and_goes_on_is_counted_with_its_attempts_and_tokens(shared_database: str) -> None:
    provider = ScriptedProvider(
        [[call("get_weather", {"city": "Berlin"}, id="a"), Usage(10, 4, 2, 1)], ["Sunny.", Usage(20, 2)]]
    )
    async with running_stage(shared_database, provider, metrics=True, default_model="scripted:m") as stage:
        chunks = await stage.play("How is the weather?", tools=[WEATHER])
        await stage.pass_results(chunks[0]["stream_id"], result("a"))
        seen = counts_of(stage)

    model = 'model="m",provider="scripted"'
    assert seen['fermata_operations_total{kind="turn",status="paused"}'] == 1
    assert seen['fermata_operations_total{kind="continuation",status="completed"}'] == 1
    assert seen['fermata_operation_seconds_count{kind="turn"}'] == 1
    labels = 'model="m",outcome="delivered",provider="scripted",reason=""'
    assert seen[f"fermata_model_attempts_total{{{labels}}}"] == 2
    assert seen[f'fermata_model_tokens_total{{kind="prompt",{model}}}'] == 30
    assert seen[f'fermata_model_tokens_total{{kind="completion",{model}}}'] == 6
    assert seen[f"fermata_model_first_output_seconds_count{{{model}}}"] == 2
    assert "get_weather" not in str(seen)
    assert "Sunny" not in str(seen)


async def test_failures_have_their_reason_and_pauses_that_end_without_results_their_cause(shared_database: str) -> None:
    provider = ScriptedProvider(
        [[call("get_weather", id="a")], [failure("auth", "scripted", "The key is wrong.")], ["never"]]
    )
    async with running_stage(shared_database, provider, metrics=True, default_model="scripted:m") as stage:
        await stage.play("How is the weather?", tools=[WEATHER])
        await stage.play("Never mind.")
        seen = counts_of(stage)

    assert seen['fermata_pauses_ended_total{event="new_turn"}'] == 1
    assert seen['fermata_operations_total{kind="turn",status="failed"}'] == 1
    labels = 'model="m",outcome="failed",provider="scripted",reason="auth"'
    assert seen[f"fermata_model_attempts_total{{{labels}}}"] == 1


async def test_each_fault_of_a_history_that_was_mended_is_counted(shared_database: str) -> None:
    async with running_stage(shared_database, ScriptedProvider(["Hello.", "Again."]), metrics=True) as stage:
        await stage.play("Hi")
        await add(shared_database, Message("assistant", None, tool_calls=(call("f", id="lost"),)))
        await stage.play("Go on")
        seen = counts_of(stage)

    mended = {name: value for name, value in seen.items() if name.startswith("fermata_history_repairs_total")}
    assert sum(mended.values()) == 1


async def test_what_runs_is_shown_while_it_runs(shared_database: str) -> None:
    hold = Hold()
    provider = ScriptedProvider([["a", hold, "b"]])
    async with running_stage(shared_database, provider, metrics=True) as stage:
        turn = asyncio.create_task(stage.play("Hi"))
        async with asyncio.timeout(PATIENCE):
            await hold.reached.wait()
            during = counts_of(stage)
            hold.release()
            await turn
        after = counts_of(stage)

    assert (during["fermata_streams_running"], after["fermata_streams_running"]) == (1, 0)
    assert during["fermata_stream_readers"] == 1


async def test_without_the_setting_there_is_nothing_to_show(shared_database: str) -> None:
    async with running_stage(shared_database, ScriptedProvider(["Hello."])) as stage:
        await stage.play("Hi", conversation=CHAT)
        assert stage.runtime.metrics() is None


def test_only_so_many_models_are_told_apart_since_callers_may_name_any() -> None:
    counted = Counted()
    for number in range(150):
        counted.attempt("p", f"m{number}", "delivered", None, first_output_seconds=None, tokens={"prompt": 1})

    seen = shown(counted.render())

    assert seen[f'fermata_model_tokens_total{{kind="prompt",model="{OTHER}",provider="p"}}'] == 50
    assert len([name for name in seen if name.startswith("fermata_model_tokens_total")]) == 101


def test_the_one_that_forgets_takes_all_that_the_other_takes() -> None:
    forgets = Metrics()
    forgets.operation("turn", "completed", 1.0)
    forgets.pause_ended("expired")
    forgets.repaired({"lost_result": 1})
    forgets.attempt("p", "m", "failed", "auth", first_output_seconds=None, tokens={})
    forgets.watch("x", "An x.", lambda: 1)

    assert forgets.render() is None


@pytest.mark.parametrize(("asked", "loaded"), [("Metrics()", False), ("Counted()", True)])
def test_the_library_is_loaded_only_where_things_are_counted(asked: str, *, loaded: bool) -> None:
    code = (
        "import sys; from app.observability.metrics import Counted, Metrics; import app.bootstrap; "
        f"{asked}; sys.exit(('prometheus_client' in sys.modules) != {loaded})"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
