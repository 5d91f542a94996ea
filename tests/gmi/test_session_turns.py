"""What lasts of a session from turn to turn, from conversation to conversation, and over a restart."""

from pathlib import Path

import pytest

from app.domain.errors import MalformedError, NotFoundError, TooLargeError
from app.domain.session import LARGEST_CONTEXT
from app.domain.turn import Caller
from app.prompts.sections import ABOUT_USER
from app.providers.scripted import Hold, call
from app.settings import Settings
from tests.databases import rows
from tests.gmi.keeping import Noting, kinds, persona, prompt, trace
from tests.gmi.rig import broken
from tests.requirements import requirement
from tests.stage import ADA, CHAT, WEATHER, Stage, one, result, running_stage, types

CLOCK = call("current_time", id="own-1")
STATES = "SELECT session_id FROM session_state ORDER BY 1"
ENTRIES = "SELECT session_id FROM reasoning_traces"

# Trace --------------------------------------------------------------------------------------------------------------


@requirement("R310")
async def test_the_trace_goes_on_from_turn_to_turn_and_over_conversations_of_the_session(stage: Stage) -> None:
    stage.provider.add([CLOCK], "It is noon.", "Hello.")
    first = one(await stage.play("What time is it?", session="s"), "final_response")
    await stage.play("Hi.", session="s", conversation="chat-2")

    entries = await trace(stage, "s", most=3)
    assert kinds(entries) == [
        "interaction_start",
        "llm_call_start",
        "llm_call_complete",
        "tool_call_requested",
        "tool_execution_result",
        "llm_call_start",
        "llm_call_complete",
        "interaction_end",
        "interaction_start",
        "llm_call_start",
        "llm_call_complete",
        "interaction_end",
    ]
    assert [entry.position for entry in entries] == list(range(1, 13))
    assert {entry.turn_id for entry in entries[:8]} == {first["turn_id"]}
    assert [entries[0].conversation_id, entries[-1].conversation_id] == [CHAT, "chat-2"]
    assert entries[0].message == "Input (text): What time is it?"
    assert entries[7].details["status"] == "completed"
    assert sorted(entry.at for entry in entries) == [entry.at for entry in entries]


async def test_a_pause_and_its_continuation_are_in_the_trace(stage: Stage) -> None:
    stage.provider.add([call("get_weather", {"city": "Berlin"}, id="c1")], "Sunny.")
    chunks = await stage.play("Weather?", session="s", tools=[WEATHER])
    stream_id = one(chunks, "tool_call_request")["stream_id"]
    await stage.pass_results(stream_id, result("c1"))

    entries = await trace(stage, "s")
    assert kinds(entries) == [
        "interaction_start",
        "llm_call_start",
        "llm_call_complete",
        "tool_call_requested",
        "interaction_end",
        "interaction_start",
        "tool_execution_result",
        "llm_call_start",
        "llm_call_complete",
        "interaction_end",
    ]
    assert [entry.details["status"] for entry in entries if entry.type == "interaction_end"] == ["paused", "completed"]
    assert (entries[6].related_id, entries[6].details["external"]) == ("c1", True)
    assert "Berlin" not in "".join(entry.message for entry in entries)
    assert {entry.stream_id for entry in entries} == {stream_id}


async def test_a_turn_that_fails_says_so_in_the_trace_and_so_does_one_that_is_cancelled(stage: Stage) -> None:
    stage.provider.add([broken(message="It s3 broke.")], ["Well, ", Hold()])
    failed = one(await stage.play("Hello"), "error")
    turn = stage.turn("Hello")
    chunks = [await anext(turn)]
    await stage.runtime.cancel(ADA, chunks[0]["stream_id"])
    chunks += [chunk async for chunk in turn]

    entries = await trace(stage)
    assert kinds(entries)[:5] == ["interaction_start", "llm_call_start", "warning", "error", "interaction_end"]
    assert (entries[3].details["code"], entries[4].details["status"]) == (failed["code"], "failed")
    assert types(chunks)[-1] == "final_response"
    assert (kinds(entries)[-1], entries[-1].details["status"]) == ("interaction_end", "cancelled")


@requirement("R311")
async def test_a_trace_keeps_500_entries_unless_a_setting_says_otherwise(shared_database: str) -> None:
    assert Settings.model_fields["reasoning_trace_entries"].default == 500
    async with running_stage(shared_database, gmis=Noting(notes=300)) as stage:
        for _ in range(2):
            await stage.play("Hello")
        entries = await trace(stage)
        assert (len(entries), entries[0].position, entries[-1].position) == (500, 105, 604)
        assert (entries[0].message, kinds(entries)[-1]) == ("note 103", "interaction_end")
    async with running_stage(shared_database, gmis=Noting(notes=30), reasoning_trace_entries=20) as stage:
        await stage.play("Hello")
        entries = await trace(stage)
        assert [entry.position for entry in entries] == list(range(605, 625))


@requirement("R312")
async def test_a_persona_sets_how_many_entries_its_trace_keeps_and_how_long_they_are(
    shared_database: str, tmp_path: Path
) -> None:
    own = persona(tmp_path, reasoning_trace="{max_entries: 3, max_message_length: 10}")
    async with running_stage(shared_database, **own) as stage:
        stage.provider.add("Hello.", "Hello.")
        for _ in range(2):
            await stage.play("Hello")

        entries = await trace(stage)
        assert kinds(entries) == ["llm_call_start", "llm_call_complete", "interaction_end"]
        assert {len(entry.message) for entry in entries} == {10}


async def test_an_operation_that_another_process_ends_is_in_the_trace(database: str) -> None:
    async with running_stage(database, lease_seconds=2.0, lease_renew_seconds=0.5) as stage:
        hold = Hold()
        stage.provider.add(["It is ", hold])
        turn = stage.turn("What time is it?", session="s")
        await anext(turn)
        (task,) = stage.runtime._lifecycle.tasks._running
        task.cancel()
        chunks = [chunk async for chunk in turn]

        assert one(chunks, "error")["code"] == "TURN_INTERRUPTED"
        (last,) = await trace(stage, "s")
        assert (last.type, last.conversation_id) == ("interaction_end", CHAT)
        assert "ended from outside" in last.message


async def test_another_users_session_looks_like_one_that_is_not_there(stage: Stage) -> None:
    stage.provider.add("Hello.")
    await stage.play("Hi.", session="s")
    for caller, session in [(Caller("bob"), "s"), (Caller("ada", "acme"), "s"), (ADA, "t")]:
        with pytest.raises(NotFoundError):
            await trace(stage, session, caller)
    with pytest.raises(MalformedError):
        await stage.runtime.session_trace(ADA, "s", cursor="x", limit=5, descending=False)


async def test_a_turn_is_told_nothing_of_anothers_session_of_the_same_name(stage: Stage) -> None:
    stage.provider.add(*["Hello."] * 3)
    for name, caller in (("b", Caller("bob")), ("c", Caller("ada", "acme"))):
        await stage.play("Hi.", caller=caller, conversation=name, session="s", user_context={"name": "Eve"})
    await stage.play("Hi.", session="s")
    assert ABOUT_USER not in prompt(stage)


async def test_the_trace_is_read_from_its_end_as_well(stage: Stage) -> None:
    stage.provider.add("Hello.")
    await stage.play("Hi.")
    newest = await stage.runtime.session_trace(ADA, CHAT, cursor=None, limit=2, descending=True)
    before = await stage.runtime.session_trace(ADA, CHAT, cursor=newest.next_cursor, limit=2, descending=True)
    assert [entry.position for entry in (*newest.items, *before.items)] == [4, 3, 2, 1]
    assert before.next_cursor is None


# Mood and contexts --------------------------------------------------------------------------------------------------


@requirement("R313")
async def test_mood_and_task_context_last_from_turn_to_turn(shared_database: str) -> None:
    gmis = Noting("curious")
    async with running_stage(shared_database, gmis=gmis) as stage:
        await stage.play("Hello", session="s")
        await stage.play("Hello again", session="s", conversation="chat-2")
        await stage.play("Who?", session="other", conversation="chat-3")

    assert [state.mood for state in gmis.found] == ["", "curious", ""]
    assert [dict(state.task_context) for state in gmis.found] == [{}, {"turns": 1}, {}]


@requirement("R314")
async def test_user_context_lasts_from_turn_to_turn_and_each_turn_merges_its_own_over_it(stage: Stage) -> None:
    stage.provider.add(*["Hello."] * 4)
    await stage.play("Hi.", session="s", user_context={"name": "Ada", "preferences": {"tone": "dry", "units": "SI"}})
    assert prompt(stage).endswith(f'{ABOUT_USER} {{"name":"Ada","preferences":{{"tone":"dry","units":"SI"}}}}')
    await stage.play("Hi.", session="s", conversation="chat-2")
    assert '"name":"Ada"' in prompt(stage)
    await stage.play("Hi.", session="s", user_context={"name": "Ada L.", "preferences": {"tone": "warm"}})
    assert prompt(stage).endswith('{"name":"Ada L.","preferences":{"tone":"warm","units":"SI"}}')
    await stage.play("Hi.", session="other", conversation="chat-3")
    assert ABOUT_USER not in prompt(stage)


async def test_the_prompt_of_one_context_is_one_text_in_whatever_order_it_came(stage: Stage) -> None:
    stage.provider.add("Hello.", "Hello.")
    await stage.play("Hi.", conversation="a", user_context={"b": [{"y": 1, "x": 2}], "a": "line\nbreak"})
    first = prompt(stage)
    await stage.play("Hi.", conversation="b", user_context={"a": "line\nbreak", "b": [{"x": 2, "y": 1}]})
    assert prompt(stage) == first
    assert first.endswith('{"a":"line\\nbreak","b":[{"x":2,"y":1}]}')


async def test_a_user_context_that_grows_too_large_is_refused_and_nothing_is_stored(stage: Stage) -> None:
    stage.provider.add("Hello.", "Hello.")
    half = "x" * (LARGEST_CONTEXT // 2)
    await stage.play("Hi.", user_context={"a": half})
    chunks = await stage.play("Hi.", user_context={"b": half})
    assert one(chunks, "error")["code"] == TooLargeError.code
    assert len(await stage.messages()) == 2
    await stage.play("Hi.")
    assert '"a":"xxx' in prompt(stage)
    assert '"b"' not in prompt(stage)


@requirement("R319", "R310", "R313", "R314")
async def test_mood_user_context_trace_and_history_outlive_a_restart(shared_database: str) -> None:
    gmis = Noting("curious")
    async with running_stage(shared_database, gmis=gmis) as stage:
        await stage.play("I am Ada.", user_context={"name": "Ada"})
        before = await trace(stage)
    again = Noting()
    async with running_stage(shared_database, gmis=again) as stage:
        await stage.play("Who am I?")
        after = await trace(stage)

    (found,) = again.found
    assert (found.mood, dict(found.user_context)) == ("curious", {"name": "Ada"})
    assert after[: len(before)] == before
    assert kinds(after[len(before) :]) == ["interaction_start", "interaction_end"]
    assert again.told == [["I am Ada.", "Done.", "Who am I?"]]


async def test_a_continuation_is_told_the_user_context_that_its_turn_was_told(stage: Stage) -> None:
    stage.provider.add([call("get_weather", {"city": "Berlin"}, id="c1")], "Hello.", "Sunny.")
    chunks = await stage.play("Weather?", session="s", tools=[WEATHER], user_context={"name": "Ada"})
    told = prompt(stage)
    await stage.play("Hi.", session="s", conversation="chat-2", user_context={"name": "Eve"})
    await stage.pass_results(one(chunks, "tool_call_request")["stream_id"], result("c1"))
    assert prompt(stage) == told


# Erasure and persistence --------------------------------------------------------------------------------------------


async def test_a_sessions_last_conversation_takes_with_it_all_that_the_session_kept(stage: Stage) -> None:
    stage.provider.add(*["Hello."] * 4)
    await stage.play("Hi.", session="s", user_context={"name": "Ada"})
    await stage.play("Hi.", session="s", conversation="chat-2")
    await stage.play("Hi.", session="t", conversation="chat-2", user_context={"name": "Eve"})

    await stage.runtime.delete_conversation(ADA, CHAT)
    assert {entry.conversation_id for entry in await trace(stage, "s")} == {"chat-2"}
    stage.provider.add("Hello.")
    await stage.play("Hi.", session="s", conversation="chat-2")
    assert '"name":"Ada"' in prompt(stage)

    await stage.runtime.delete_conversation(ADA, "chat-2")
    for session in ("s", "t"):
        with pytest.raises(NotFoundError):
            await trace(stage, session)
    assert await rows(stage.database, STATES) == []
    assert await rows(stage.database, ENTRIES) == []


async def test_a_conversation_that_is_erased_while_it_runs_leaves_nothing_of_its_session(stage: Stage) -> None:
    hold = Hold()
    stage.provider.add(["Well, ", hold])
    turn = stage.turn("Hi.", session="t", user_context={"name": "Ada"})
    await anext(turn)
    await hold.reached.wait()
    assert [row["session_id"] for row in await rows(stage.database, STATES)] == ["t"]
    await stage.runtime.delete_conversation(ADA, CHAT)
    hold.release()
    await stage.runtime._lifecycle.tasks.wait(5)
    assert await rows(stage.database, STATES) == []
    assert await rows(stage.database, ENTRIES) == []


async def test_with_persistence_off_a_session_keeps_nothing(shared_database: str) -> None:
    async with running_stage(shared_database, enable_conversational_persistence=False) as stage:
        stage.provider.add("Hello.", "Hello.")
        await stage.play("Hi.", user_context={"name": "Ada"})
        assert '"name":"Ada"' in prompt(stage)
        await stage.play("Hi.")
        assert ABOUT_USER not in prompt(stage)
        assert await rows(shared_database, STATES) == []
        with pytest.raises(NotFoundError):
            await trace(stage)
