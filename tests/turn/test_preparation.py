"""Preparation: twelve phases in their order, each under its span, and what a failure of each does to the turn."""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from opentelemetry import trace

from app.domain.errors import AppError, DatabaseError
from app.domain.jsontext import dumps_text
from app.domain.turn import Caller, TurnOptions
from app.providers.errors import failure
from app.providers.scripted import call
from app.turn.gmi.base import Gmi
from app.turn.orchestrator import turn as turn_stage
from app.turn.preparation.draft import PhaseServices, TurnDraft
from app.turn.preparation.pipeline import PHASES, Phase, Rule, prepare
from tests.databases import rows
from tests.requirements import requirement
from tests.stage import CHAT, WEATHER, Stage, one, result, running_stage, types

NAMES = [
    "validate",
    "acquire_gmi",
    "stream_context",
    "gmi_input",
    "plan",
    "execution_policy",
    "memory_policy",
    "persist_inbound",
    "summary",
    "prompt_profile",
    "recall",
    "history",
]


class BrokenError(AppError):
    code = "TEST_BROKEN"


def watched(seen: list[str], broken: str = "", error: Exception | None = None) -> Sequence[Phase]:
    """Give the phases as they are, each noting that it ran; one of them breaks, the first time it is run."""
    left = [error] if error is not None else []

    def of(phase: Phase) -> Phase:
        async def run(draft: TurnDraft, services: PhaseServices) -> None:
            seen.append(phase.name)
            if phase.name == broken and left:
                raise left.pop()
            await phase.run(draft, services)

        return replace(phase, run=run)

    return [of(phase) for phase in PHASES]


def patched(monkeypatch: pytest.MonkeyPatch, phases: Sequence[Phase]) -> None:
    monkeypatch.setattr(turn_stage, "prepare", partial(prepare, phases=phases))


@requirement("R246")
async def test_a_turn_is_prepared_in_twelve_phases_in_their_order(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [phase.name for phase in PHASES] == NAMES
    modules = [inspect.getmodule(phase.run).__name__.rpartition(".")[2] for phase in PHASES]  # type: ignore[union-attr]
    assert [name[:4] for name in modules] == [f"p{number:02}_" for number in range(1, 13)]
    seen: list[str] = []
    patched(monkeypatch, watched(seen))
    stage.provider.add("Hello.")
    await stage.play("Hi.")
    assert seen == NAMES


@requirement("R246")
async def test_each_phase_has_a_span_of_its_name(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    class Tracer(trace.NoOpTracer):
        def start_as_current_span(self, name: str, *args: Any, **more: Any) -> Any:
            names.append(name)
            return super().start_as_current_span(name, *args, **more)

    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    monkeypatch.setattr(trace, "get_tracer", lambda _: Tracer())
    stage.provider.add("Hello.")
    await stage.play("Hi.")
    assert names == ["operation.turn", *(f"preparation.{name}" for name in NAMES)]


class Spans(trace.NoOpTracer):
    """Makes spans that can be told apart and that nobody keeps: all of one trace."""

    def __init__(self) -> None:
        self.made: list[trace.SpanContext] = []

    def start_as_current_span(self, *_: Any, **__: Any) -> Any:
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        self.made.append(trace.SpanContext(0xABC, len(self.made) + 1, is_remote=False, trace_flags=flags))
        return trace.use_span(trace.NonRecordingSpan(self.made[-1]))


async def test_chunks_that_tell_how_a_turn_stands_name_its_span_where_spans_are_made_and_no_others_ever_do(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def kinds(call_id: str) -> dict[str, set[str]]:
        stage.provider.add([call(WEATHER.name, {"city": "Rome"}, id=call_id)], "It rains.")
        stage.provider.add([failure("invalid_request", "scripted", "no")])
        chunks = await stage.play("Hi.", tools=[WEATHER])
        chunks += await stage.pass_results(chunks[0]["stream_id"], result(call_id))
        chunks += await stage.play("And now?")
        assert len({chunk["type"] for chunk in chunks}) > 5
        found: dict[str, set[str]] = {}
        for chunk in chunks:
            found.setdefault(chunk["type"], set()).add(dumps_text((chunk.get("metadata") or {}).get("trace")))
        return found

    assert {told for each in (await kinds("w1")).values() for told in each} == {"null"}
    spans = Spans()
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    monkeypatch.setattr(trace, "get_tracer", lambda _: spans)
    found = await kinds("w2")
    traced = {kind for kind, told in found.items() if told != {"null"}}
    assert traced == {"metadata_update", "final_response", "error"}
    # One span for each of the three operations, whichever phase was running.
    operations = {1, 1 + 1 + len(NAMES), 1 + 2 + len(NAMES)}
    spoken = {told for kind in traced for told in found[kind]}
    assert spoken == {
        dumps_text({
            "trace_id": f"{0xABC:032x}", "span_id": f"{span:016x}", "traceparent": f"00-{0xABC:032x}-{span:016x}-01",
        })
        for span in operations
    }  # fmt: skip


@requirement("R2", "R247", "R250", "R251")
@pytest.mark.parametrize("name", NAMES[:8])
async def test_a_phase_up_to_the_acceptance_that_fails_refuses_the_turn_and_nothing_is_stored(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    seen: list[str] = []
    with monkeypatch.context() as patch:
        patched(patch, watched(seen, name, BrokenError("It broke.")))
        chunks = await stage.play("Hi.")
    assert [(chunk["type"], chunk["code"]) for chunk in chunks] == [("error", "TEST_BROKEN")]
    assert seen == NAMES[: NAMES.index(name) + 1]
    everything = "SELECT 1 FROM conversations UNION ALL SELECT 1 FROM inbound_messages UNION ALL SELECT 1 FROM streams"
    assert await rows(stage.database, everything) == []


@requirement("R305")
@pytest.mark.parametrize("name", ["summary", "history"])
async def test_a_phase_behind_the_acceptance_that_fails_ends_the_stream_with_an_error_and_no_final_response(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with monkeypatch.context() as patch:
        patched(patch, watched([], name, BrokenError("It broke.")))
        chunks = await stage.play("Hi.")
    assert (chunks[-1]["type"], chunks[-1]["code"], chunks[-1]["message"]) == ("error", "TEST_BROKEN", "It broke.")
    assert "final_response" not in types(chunks)
    assert await stage.said() == [("user", "Hi.")]
    (stream,) = await rows(stage.database, "SELECT status FROM streams")
    assert stream["status"] == "failed"


@pytest.mark.parametrize("name", ["summary", "history"])
async def test_a_phase_behind_the_acceptance_waits_for_a_database_that_is_away(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    seen: list[str] = []
    stage.provider.add("Hello.")
    with monkeypatch.context() as patch:
        patched(patch, watched(seen, name, DatabaseError("Away.")))
        chunks = await stage.play("Hi.")
    assert one(chunks, "final_response")["final_response_text"] == "Hello."
    assert seen.count(name) == 2


@pytest.mark.parametrize("name", ["prompt_profile", "recall"])
@pytest.mark.parametrize("error", [BrokenError("It broke."), DatabaseError("Away."), ValueError("Oh.")])
async def test_a_phase_that_only_adds_something_does_not_fail_the_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception
) -> None:
    stage.provider.add("Hello.")
    with monkeypatch.context() as patch:
        patched(patch, watched([], name, error))
        chunks = await stage.play("Hi.")
    assert one(chunks, "final_response")["final_response_text"] == "Hello."
    told = [chunk["updates"] for chunk in chunks if "history" in chunk.get("updates", {})]
    assert told[0][name] == {"failed": True}


def test_each_phase_has_a_rule_for_its_failure() -> None:
    assert {phase.name: phase.rule for phase in PHASES} == {
        **dict.fromkeys(NAMES[:8], Rule.REFUSE),
        "summary": Rule.WAIT,
        "prompt_profile": Rule.GO_ON,
        "recall": Rule.GO_ON,
        "history": Rule.WAIT,
    }


# Phase by phase -----------------------------------------------------------------------------------------------------


@requirement("R247")
async def test_a_bad_input_is_refused_before_a_gmi_is_acquired(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    with monkeypatch.context() as patch:
        patched(patch, watched(seen))
        refused = await stage.play("   ")
    assert refused[0]["code"] == "SYS_VALIDATION_ERROR"
    assert seen == ["validate"]


@requirement("R248", "R249")
async def test_a_turn_takes_its_gmi_from_the_manager_and_names_it_before_the_input_is_built(
    shared_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:

    named: list[tuple[str, str]] = []
    async with running_stage(shared_database) as stage:
        manager = stage.runtime._services.gmis
        acquire = manager.acquire

        async def noting(caller: Caller, session_id: str, persona_id: str) -> Gmi:
            named.append((session_id, persona_id))
            return await acquire(caller, session_id, persona_id)

        monkeypatch.setattr(manager, "acquire", noting)
        stage.provider.add("Hello.")
        seen: list[str] = []
        drafts: list[TurnDraft] = []

        def of(phase: Phase) -> Phase:
            async def run(draft: TurnDraft, services: PhaseServices) -> None:
                seen.append(f"{phase.name}:{draft.gmi is not None}:{draft.input is not None}")
                drafts.append(draft)
                await phase.run(draft, services)

            return replace(phase, run=run)

        with monkeypatch.context() as patch:
            patched(patch, [of(phase) for phase in PHASES])
            chunks = await stage.play("Hi.", session="s")
    assert named == [("s", "demo")]
    assert seen[:5] == [
        "validate:False:False",
        "acquire_gmi:False:False",
        "stream_context:True:False",
        "gmi_input:True:False",
        "plan:True:True",
    ]
    assert (chunks[0]["type"], chunks[0]["progress_percentage"]) == ("system_progress", 10)
    assert chunks[0]["gmi_instance_id"] == drafts[0].gmi.instance_id  # type: ignore[union-attr]


@requirement("R251")
async def test_a_refused_organization_ends_the_turn_with_nothing_stored(shared_database: str) -> None:
    strict: dict[str, Any] = {
        "tenant_mode": "single_tenant",
        "default_organization_id": "acme",
        "strict_organization_isolation": True,
    }
    async with running_stage(shared_database, **strict) as stage:
        refused = await stage.play("Hi.", caller=Caller("ada", "other"))
        assert [(chunk["type"], chunk["code"]) for chunk in refused] == [("error", "SYS_VALIDATION_ERROR")]
        assert await rows(shared_database, "SELECT 1 FROM conversations") == []


@requirement("R120", "R252")
async def test_phase_8_ends_the_held_pause_first_and_stores_the_input_behind_it(stage: Stage) -> None:
    stage.provider.add([call("get_weather", {"city": "Berlin"}, id="c1")], "Hello.")
    await stage.play("Weather?", tools=[WEATHER])
    await stage.play("Never mind.")
    said = await stage.messages()
    assert [(message.role, message.tool_call_id) for message in said[:4]] == [
        ("user", None),
        ("assistant", None),
        ("tool", "c1"),
        ("user", None),
    ]
    assert said[3].content == "Never mind."
    assert await stage.pending() is None


@requirement("R253")
async def test_the_summary_sees_the_input_of_its_own_turn(shared_database: str) -> None:
    settings = {
        "rolling_summary_compaction": {
            "enabled": True,
            "min_messages_to_summarize": 2,
            "head_messages_to_keep": 0,
            "tail_messages_to_keep": 1,
            "cooldown_seconds": 0,
        }
    }
    async with running_stage(shared_database, **settings) as stage:  # type: ignore[arg-type]
        stage.provider.add("One.", '{"summary_markdown": "They met."}', "Two.")
        await stage.play("First.")
        await stage.play("Second.")
        # Two earlier messages are enough only because the input of this turn is the one that is kept as the tail.
        asked = stage.provider.requests[1].messages[-1].content
        assert "First." in str(asked)
        assert "Second." not in str(asked)
        last = [message.content for message in stage.provider.requests[2].messages]
        assert last[-1] == "Second."
        assert "First." not in last


@requirement("R254")
async def test_phase_12_assembles_the_history_and_what_was_decided_is_stored_with_the_outcome(stage: Stage) -> None:
    stage.provider.add("One.", "Two.")
    await stage.play("First.", user_context={"name": "Ada"})
    chunks = await stage.play("Second.", user_context={"name": "Eve"})
    told = [message.content for message in stage.provider.requests[-1].messages]
    assert told[1:] == ["First.", "One.", "Second."]
    (routing,) = [chunk["updates"] for chunk in chunks if "history" in chunk.get("updates", {})]
    assert set(routing) >= {
        "prompt_profile",
        "organization_id",
        "tenant_routing",
        "long_term_memory_recall",
        "long_term_memory_policy",
        "task_outcome_telemetry",
        "adaptive_execution",
        "turn_planning",
        "long_term_memory_retrieval",
        "rolling_summary",
        "history",
    }
    (session,) = await rows(stage.database, "SELECT user_context FROM session_state")
    assert '"Eve"' in str(session["user_context"])
    (conversation,) = await rows(stage.database, "SELECT persona_id, running_operation FROM conversations")
    assert (conversation["persona_id"], conversation["running_operation"]) == ("demo", None)


@requirement("R249")
async def test_what_a_stop_of_the_stream_leaves_is_known_to_its_continuation(stage: Stage) -> None:
    stage.provider.add([call("get_weather", {"city": "Berlin"}, id="c1")], "Sunny.")
    options = TurnOptions(temperature=0.3)
    paused = one(await stage.play("Weather?", tools=[WEATHER], options=options), "tool_call_request")
    went_on = await stage.pass_results(paused["stream_id"], result("c1"))
    assert {chunk["gmi_instance_id"] for chunk in went_on} == {paused["gmi_instance_id"]}
    assert stage.provider.requests[-1].temperature == 0.3
    assert (await stage.runtime.get_conversation(Caller("ada"), CHAT)).persona_id == "demo"
