"""The limit: what is told of a conversation that is past it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.conversation.rounds import blocks
from app.conversation.window import window
from app.domain.messages import Message
from tests.conversation.histories import INPUT, round_of, stored
from tests.requirements import requirement

LIMITS = st.integers(1, 30)
HEADS = st.integers(0, 6)


def said(number: int) -> list[Message]:
    return [Message("user" if index % 2 else "assistant", f"m{index}") for index in range(1, number + 1)]


def names(messages: list[Message]) -> list[str]:
    return [str(message.content) for message in messages]


@requirement("R322")
@given(stored(), HEADS)
@settings(deadline=None)
def test_a_limit_of_zero_keeps_everything(messages: list[Message], head: int) -> None:
    assert window(messages, limit=0, head=head) == messages


@requirement("R325", "R336")
@given(stored(), LIMITS, HEADS)
@settings(deadline=None, max_examples=120)
def test_head_and_newest_message_stay_and_no_round_is_torn(messages: list[Message], limit: int, head: int) -> None:
    kept = window(messages, limit=limit, head=head)
    places = [messages.index(message) if message is INPUT else _place(messages, message) for message in kept]
    assert places == sorted(set(places))
    assert kept[: min(head, len(messages))] == messages[:head]
    assert kept[-1] is messages[-1]
    for block in blocks(messages):
        assert len(set(range(block.start, block.stop)) & set(places)) in {0, block.stop - block.start}


def _place(messages: list[Message], wanted: Message) -> int:
    return next(place for place, message in enumerate(messages) if message is wanted)


@given(stored(), LIMITS, HEADS)
@settings(deadline=None, max_examples=120)
def test_twice_is_the_same_as_once(messages: list[Message], limit: int, head: int) -> None:
    once = window(messages, limit=limit, head=head)
    assert window(once, limit=limit, head=head) == once


@requirement("R320", "R323", "R324")
@pytest.mark.parametrize("limit", [3, 4, 5, 9])
def test_past_the_limit_the_oldest_behind_the_head_drop_out_first(limit: int) -> None:
    kept = window(said(10), limit=limit, head=2)
    assert names(kept) == ["m1", "m2", *[f"m{n}" for n in range(10 - limit + 3, 11)]]
    assert len(kept) == limit


@requirement("R325")
@pytest.mark.parametrize("limit", [1, 2])
def test_a_limit_without_room_beside_the_head_keeps_head_and_newest_message(limit: int) -> None:
    assert names(window(said(10), limit=limit, head=2)) == ["m1", "m2", "m10"]


@requirement("R330", "R331")
def test_a_drop_keeps_the_summary_behind_the_head_and_the_last_one() -> None:
    first, second, third = (Message("summary", f"s{n}") for n in (1, 2, 3))
    messages = [*said(2), first, *said(4), second, *said(4), third, *said(9)]
    assert names(window(messages, limit=6, head=2)) == ["m1", "m2", "s1", "s3", "m8", "m9"]


@requirement("R332")
@pytest.mark.parametrize(("limit", "kept"), [(3, ["s2", "m9"]), (4, ["s2", "m9"]), (5, ["s1", "s2", "m9"])])
def test_with_room_for_one_summary_beside_the_newest_message_the_last_one_stays(limit: int, kept: list[str]) -> None:
    messages = [*said(2), Message("summary", "s1"), *said(4), Message("summary", "s2"), *said(9)]
    assert names(window(messages, limit=limit, head=2)) == ["m1", "m2", *kept]


@requirement("R336", "R337")
def test_a_round_that_the_kept_messages_reach_into_stays_whole_even_over_the_limit() -> None:
    messages = [*said(6), *round_of("call", 3), INPUT]
    kept = window(messages, limit=4, head=2)
    assert kept == [*messages[:2], *messages[6:]]
    assert len(kept) == 7


@requirement("R336")
def test_a_round_that_the_head_reaches_into_stays_whole() -> None:
    messages = [INPUT, *round_of("call", 3), *said(10)]
    assert window(messages, limit=4, head=2)[:5] == messages[:5]
