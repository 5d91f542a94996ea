"""`valid`: what it makes of any list, and what it leaves alone."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from app.conversation.rounds import blocks
from app.conversation.valid import LOST_RESULT, OPENING, valid
from app.domain.messages import Message, ToolCall
from tests.conversation.histories import INPUT, answer, broken_rules, calls_of, messy, round_of, stored
from tests.requirements import requirement

LISTS = st.one_of(messy(), stored())


@requirement("R58", "R59")
@settings(deadline=None, max_examples=200)
@given(LISTS)
def test_any_list_becomes_one_that_a_strict_server_takes(messages: list[Message]) -> None:
    assert broken_rules(valid([*messages, INPUT]).messages) == []


@settings(deadline=None, max_examples=120)
@given(LISTS)
def test_twice_is_the_same_as_once(messages: list[Message]) -> None:
    once = valid(messages)
    again = valid(once.messages)
    assert again.messages == once.messages
    assert again.repairs == 0


@settings(deadline=None, max_examples=120)
@given(LISTS, LISTS)
def test_a_longer_history_begins_with_the_shorter_one(first: list[Message], more: list[Message]) -> None:
    shorter = valid([*first, INPUT]).messages
    assert valid([*first, INPUT, *more]).messages[: len(shorter)] == shorter


@settings(deadline=None, max_examples=120)
@given(LISTS, st.integers(1, 4), st.data())
def test_a_round_that_still_waits_at_the_end_is_left_as_it_is(
    messages: list[Message], number: int, data: st.DataObject
) -> None:
    live = round_of("live", number, answered=data.draw(st.integers(0, number - 1)))
    told = valid([*messages, INPUT, *live]).messages
    assert list(told[-len(live) :]) == live
    assert broken_rules(told[: -len(live)]) == []


@settings(deadline=None, max_examples=120)
@given(stored())
def test_nothing_that_says_something_is_lost(messages: list[Message]) -> None:
    told = valid(messages).messages
    said = [message.content for message in told if message.role != "tool" and message is not OPENING]
    assert said == [message.content for message in messages if message.role != "tool"]
    answers = {message.tool_call_id: message.content for message in messages if message.role == "tool"}
    assert {m.tool_call_id: m.content for m in told if m.role == "tool" and m.content != LOST_RESULT} == answers


@requirement("R334", "R335")
@settings(deadline=None, max_examples=100)
@given(LISTS)
def test_errors_and_thoughts_are_never_told(messages: list[Message]) -> None:
    roles = {
        message.role for message in valid([Message("error", "It broke."), *messages, Message("thought", "hm")]).messages
    }
    assert roles <= {"user", "assistant", "tool", "system"}


def test_a_lost_result_becomes_a_neutral_error_in_the_place_of_its_call() -> None:
    calls = calls_of("call", 3)
    told = valid([INPUT, Message("assistant", None, tool_calls=calls), answer(calls[2]), answer(calls[0]), INPUT])
    assert [(message.tool_call_id, message.content, message.is_error) for message in told.messages[2:5]] == [
        ("call_0", "found", False),
        ("call_1", LOST_RESULT, True),
        ("call_2", "found", False),
    ]
    assert told.faults == {"lost_result": 1}


def test_a_result_that_comes_too_late_is_left_out() -> None:
    calls = calls_of("call", 1)
    told = valid([INPUT, Message("assistant", None, tool_calls=calls), INPUT, answer(calls[0]), INPUT])
    assert [message.role for message in told.messages] == ["user", "assistant", "tool", "user", "user"]
    assert told.messages[2].content == LOST_RESULT
    assert told.faults == {"lost_result": 1, "orphan_result": 1}


def test_of_two_results_for_one_call_the_first_is_told() -> None:
    calls = calls_of("call", 1)
    asked = Message("assistant", None, tool_calls=calls)
    told = valid([INPUT, asked, answer(calls[0], "first"), answer(calls[0], "second"), INPUT])
    assert [message.content for message in told.messages[2:-1]] == ["first"]
    assert told.faults == {"surplus_result": 1}


def test_a_call_id_that_comes_again_gets_one_of_its_own_and_keeps_its_result() -> None:
    call = ToolCall("call", "look_up")
    again = [Message("assistant", None, tool_calls=(call,)), answer(call, "second")]
    told = valid([INPUT, Message("assistant", None, tool_calls=(call,)), answer(call, "first"), *again, INPUT])
    names = [(m.tool_calls[0].id, n.tool_call_id, n.content) for m, n in pairwise(told.messages) if m.tool_calls]
    assert names == [("call", "call", "first"), ("call_2", "call_2", "second")]
    assert told.faults == {"repeated_call_id": 1}


def test_a_summary_is_told_as_a_users_message() -> None:
    assert [message.role for message in valid([Message("summary", "Before."), INPUT]).messages] == ["user", "user"]


def test_a_list_that_begins_with_the_assistant_gets_an_opening_and_keeps_every_word() -> None:
    told = valid([Message("system", "Be kind."), Message("assistant", "Hello"), INPUT])
    assert told.messages == (Message("system", "Be kind."), OPENING, Message("assistant", "Hello"), INPUT)
    assert told.repairs == 0


def test_results_in_the_order_in_which_the_host_sent_them_are_no_fault() -> None:
    calls = calls_of("call", 2)
    told = valid([INPUT, Message("assistant", None, tool_calls=calls), answer(calls[1]), answer(calls[0]), INPUT])
    assert [message.tool_call_id for message in told.messages[2:4]] == ["call_0", "call_1"]
    assert told.repairs == 0


def test_a_round_is_complete_when_each_call_has_an_answer_of_its_own() -> None:
    twins = (ToolCall("call", "look_up"), ToolCall("call", "look_up"))
    messages = [Message("assistant", None, tool_calls=twins), answer(twins[0])]
    assert [block.complete for block in blocks(messages)] == [False]
    assert [block.complete for block in blocks([*messages, answer(twins[1])])] == [True]
