"""A session's values: how contexts merge, what a trace keeps, and what the built-in GMI notes in it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from app.domain.errors import TooLargeError
from app.domain.jsontext import dumps_text
from app.domain.session import LARGEST_CONTEXT, SessionState, merged
from app.providers.scripted import call
from app.turn.gmi.session import MOST_ENTRIES, Session, Trace
from tests.gmi.rig import HOST_TOOL, Echo, Rig, broken

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kept", "given", "result"),
    [
        ({}, {"name": "Ada"}, {"name": "Ada"}),
        ({"name": "Ada", "plan": "free"}, {"plan": "pro"}, {"name": "Ada", "plan": "pro"}),
        ({"tags": {"a": 1}}, {"tags": {"b": 2}}, {"tags": {"b": 2}}),
        ({"preferences": {"a": 1, "b": 2}}, {"preferences": {"b": 3}}, {"preferences": {"a": 1, "b": 3}}),
        ({"preferences": {"a": {"x": 1}}}, {"preferences": {"a": {"y": 2}}}, {"preferences": {"a": {"y": 2}}}),
        ({"preferences": {"a": 1}}, {"preferences": "brief"}, {"preferences": "brief"}),
        ({"preferences": "brief"}, {"preferences": {"a": 1}}, {"preferences": {"a": 1}}),
        ({"name": "Ada", "plan": "pro"}, {"plan": None}, {"name": "Ada"}),
        ({"preferences": {"a": 1, "b": 2}}, {"preferences": {"a": None}}, {"preferences": {"b": 2}}),
        ({"name": "Ada"}, {}, {"name": "Ada"}),
    ],
)
def test_a_user_context_merges_its_preferences_key_by_key_and_replaces_the_rest(
    kept: dict[str, Any], given: dict[str, Any], result: dict[str, Any]
) -> None:
    before = dumps_text([kept, given])
    assert merged(kept, given) == result
    assert dumps_text([kept, given]) == before


def test_a_user_context_that_has_grown_too_large_is_refused_with_its_sizes() -> None:
    half = "x" * (LARGEST_CONTEXT // 2)
    with pytest.raises(TooLargeError, match="user context") as refused:
        merged({"preferences": {"a": half}}, {"preferences": {"b": half}})
    assert refused.value.details["limit"] == LARGEST_CONTEXT
    assert merged({"preferences": {"a": half}}, {"preferences": {"a": None, "b": half}})["preferences"].keys() == {"b"}


def test_a_trace_keeps_its_last_entries_and_cuts_long_messages() -> None:
    trace = Trace(lambda: NOON)
    trace.note("warning", "x" * 1001)
    trace.note("warning", "y" * 1000)
    trace.note("error", "The\x00end", related_id="call\x00", details={"code": "E"})

    first, second, last = trace.entries(most=10)
    assert (len(first.message), first.message[-1], first.at) == (1000, "…", NOON)
    assert second.message == "y" * 1000
    assert (last.message, last.related_id, last.details) == ("The\ufffdend", "call\ufffd", {"code": "E"})
    assert trace.entries(most=2) == (second, last)
    assert trace.entries(most=1, longest=3)[0].message == "Th…"


def test_a_trace_does_not_grow_without_end() -> None:
    trace = Trace()
    for number in range(MOST_ENTRIES + 5):
        trace.note("warning", str(number))
    assert trace.entries(most=2 * MOST_ENTRIES)[0].message == "5"


@pytest.mark.parametrize("details", [{"a": object()}, {"a": {1, 2}}])
def test_details_that_can_not_be_stored_are_left_out_of_a_trace(details: dict[str, Any]) -> None:
    trace = Trace()
    trace.note("warning", "Odd.", details=details)
    assert [entry.details for entry in trace.entries(most=1)] == [None]


def test_details_are_kept_as_they_were_when_they_were_noted() -> None:
    trace, details = Trace(), {"list": [1]}
    trace.note("warning", "Odd.", details=details)
    details["list"].append(2)
    assert trace.entries(most=1)[0].details == {"list": [1]}


def test_what_a_session_has_kept_is_changed_value_by_value() -> None:
    session = Session()
    session.begin(SessionState("calm", {"name": "Ada"}, {"goal": "tea"}, version=3))
    assert session.changes == {}
    session.change(mood="curious", task_context={"status": "done"})
    session.change(user_context={"preferences": {"tone": "dry"}})

    assert session.state.mood == "curious"
    assert session.changes == {
        "mood": "curious",
        "task_context": {"goal": "tea", "status": "done"},
        "user_context": {"name": "Ada", "preferences": {"tone": "dry"}},
    }


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"mood": "glad", "user_context": {"a": "x" * LARGEST_CONTEXT}}, TooLargeError),
        ({"mood": "glad", "task_context": {"a": "x" * LARGEST_CONTEXT}}, TooLargeError),
        ({"mood": "glad", "task_context": {"a": object()}}, TypeError),
    ],
)
def test_a_change_that_can_not_be_kept_changes_nothing(change: dict[str, Any], error: type[Exception]) -> None:
    session = Session()
    with pytest.raises(error):
        session.change(**change)
    assert (session.state, session.changes) == (SessionState(), {})


async def test_the_gmi_notes_its_steps_and_its_calls_and_not_what_was_said() -> None:
    mine, theirs = call("echo", {"secret": "s3"}, id="c1"), call("get_weather", {"city": "s3"}, id="c2")
    wild = call("s3_tool", id="c3")
    rig, session = Rig([["Let me s3. ", mine, theirs, wild]], tools=[Echo()]), Session()
    await rig.run(host_tools=(HOST_TOOL,), session=session)

    entries = session.trace.entries(most=50)
    assert [(entry.type, entry.related_id) for entry in entries] == [
        ("llm_call_start", None),
        ("llm_call_complete", None),
        ("tool_call_requested", "c1"),
        ("tool_call_requested", "c2"),
        ("tool_call_requested", "c3"),
        ("tool_execution_result", "c1"),
        ("tool_execution_result", "c3"),
    ]
    details = [entry.details or {} for entry in entries]
    assert (details[0]["step"], details[0]["messages"], details[0]["tools"]) == (0, 2, 2)
    assert (details[1]["finish_reason"], details[1]["calls"]) == ("tool_calls", 3)
    assert [entry["external"] for entry in details[2:5]] == [False, True, False]
    assert [(entry["tool"], entry["is_error"], entry["code"]) for entry in details[5:]] == [
        ("echo", False, None),
        (None, True, "TOOL_NOT_FOUND"),
    ]
    assert "s3" not in dumps_text([[entry.message, entry.details] for entry in entries])


async def test_an_attempt_that_fails_is_a_warning_and_the_ledger_is_told_of_it_all_the_same() -> None:
    rig, session = Rig([[broken("overloaded")]], ["Hello."], fallbacks=("two:m2",)), Session()
    await rig.run(session=session)

    entries = session.trace.entries(most=50)
    assert [entry.type for entry in entries] == ["llm_call_start", "warning", "llm_call_complete"]
    assert (entries[1].details or {})["reason"] == "overloaded"
    assert (entries[2].message, len(rig.calls)) == ("Step 1 was answered by two:m2.", 2)
