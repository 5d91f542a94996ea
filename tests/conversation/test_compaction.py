"""A pass as values: which messages it takes, what its model reads, and how an answer is read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.conversation.compaction import Bounds, choose, read_answer, within
from app.conversation.profiles import profile_of
from app.conversation.setting import RollingSummarySetting
from app.conversation.tokens import Estimate
from app.domain.jsontext import loads
from app.domain.messages import Message
from app.domain.policy import Compaction, SummaryPolicy
from tests.conversation.histories import entries_of, round_of, stored
from tests.requirements import requirement

FAR = 10_000


def users(number: int) -> list[Message]:
    return [Message("user", f"m{n}") for n in range(number)]


def taken(messages: list[Message], *, head: int = 0, tail_from: int = FAR, least: int = 1, most: int = 48) -> list[int]:
    chosen = choose(entries_of(messages), Bounds(head, tail_from, least, most))
    return [entry.position for entry in chosen.taken] if chosen else []


@requirement("R343")
def test_a_pass_takes_the_oldest_behind_the_head_up_to_its_limit() -> None:
    assert taken(users(20), head=2, most=5) == [3, 4, 5, 6, 7]


def test_a_pass_stops_before_the_tail() -> None:
    assert taken(users(20), head=2, tail_from=6) == [3, 4, 5]


def test_a_pass_with_less_than_the_minimum_takes_nothing() -> None:
    assert taken(users(20), head=2, tail_from=6, least=4) == []


def test_a_minimum_above_the_limit_of_a_pass_never_compacts() -> None:
    assert taken(users(100), least=13, most=12) == []


@requirement("R63")
def test_a_border_that_moves_for_a_round_does_nothing_rather_than_split_it() -> None:
    messages = [*users(3), *round_of("call", 3), *users(5)]
    assert taken(messages, least=4, most=5) == []
    assert taken(messages, least=3, most=5) == [1, 2, 3]
    assert taken(messages, least=4, most=7) == [1, 2, 3, 4, 5, 6, 7]
    assert taken(messages, least=4, tail_from=6) == []


@requirement("R64")
def test_a_round_that_the_head_reaches_into_is_left_to_the_head() -> None:
    assert taken([*users(1), *round_of("call", 3), *users(4)], head=2) == [6, 7, 8, 9]


def test_a_round_that_is_larger_than_a_pass_is_taken_by_itself() -> None:
    assert taken([*round_of("call", 6), *users(4)], most=4) == [1, 2, 3, 4, 5, 6, 7]


@requirement("R339")
def test_a_round_that_waits_is_left_out_and_the_messages_behind_it_are_taken() -> None:
    assert taken([*users(2), *round_of("call", 2, answered=1), *users(2)]) == [1, 2, 5, 6]


def test_system_messages_summaries_and_messages_that_say_nothing_are_never_taken() -> None:
    messages = [Message("system", "Rule"), Message("summary", "s"), Message("user", []), *users(2)]
    assert taken(messages) == [4, 5]


def test_an_assistant_that_only_called_tools_counts() -> None:
    assert taken(round_of("call", 1)) == [1, 2]


@settings(deadline=None, max_examples=200)
@given(stored(), st.integers(200, 4000))
def test_what_a_pass_reads_is_bounded_by_tokens_and_goes_by_whole_rounds(messages: list[Message], budget: int) -> None:
    chosen = choose(entries_of(messages), Bounds(0, FAR, 1, 48))
    if chosen is None:
        return
    counter = Estimate()
    kept, told = within(chosen.taken, counter, budget)
    assert kept == chosen.taken[: len(kept)]
    assert kept
    assert len(loads(told)) == len(kept)
    last = kept[-1].message
    behind = chosen.taken[len(kept) :]
    assert not (behind and behind[0].message.role == "tool"), last
    if len(kept) > 6:  # more than one block
        assert counter.text(told) <= budget + 6 * len(kept)


def test_a_text_that_is_too_long_for_a_pass_is_cut_in_its_middle() -> None:
    text = "begin " + "x" * 100_000 + " end"
    kept, told = within(entries_of([Message("user", text)]), Estimate(), 2000)
    assert len(kept) == 1
    assert len(told) < 4000
    shown = loads(told)[0]["text"]
    assert shown.startswith("begin")
    assert shown.endswith(" end")
    assert "characters left out" in shown


@pytest.mark.parametrize(
    "answer",
    [
        '{"summary_markdown": " Said hello. ", "memory_json": {"facts": ["a"]}}',
        'Here you are:\n```json\n{"summary_markdown": "Said hello.", "memory_json": {"facts": ["a"]}}\n```\nBye',
        'Sure! {"summary_markdown": "Said hello.", "memory_json": {"facts": ["a"]}} Anything else?',
        '{"memory_json": {"facts": ["a"]}, "summary_markdown": "Said hello.',
    ],
)
def test_an_answer_is_read_as_json_also_in_a_fence_amid_words_or_cut_short(answer: str) -> None:
    written = read_answer(answer)
    assert written is not None
    assert (written.text, written.memory) == ("Said hello.", {"facts": ["a"]})


@pytest.mark.parametrize("answer", ["They said hello.", '{"summary": "They said hello."}', "[1, 2]", "{broken"])
def test_an_answer_that_is_no_such_json_counts_as_the_summary_itself(answer: str) -> None:
    written = read_answer(f"  {answer}\n")
    assert written is not None
    assert (written.text, written.memory) == (answer, None)


@pytest.mark.parametrize("answer", ["", "  \n", '{"summary_markdown": "  "}'])
def test_an_answer_that_says_nothing_is_none(answer: str) -> None:
    assert read_answer(answer) is None


def test_what_a_summarizer_writes_can_be_stored() -> None:
    written = read_answer('{"summary_markdown": "a\\u0000b\\ud800", "memory_json": {"k\\u0000": "\\udfff"}}')
    assert written is not None
    assert (written.text, written.memory) == ("a\ufffdb\ufffd", {"k\ufffd": "\ufffd"})


PLAIN, CODE, REVIEW = Compaction(), Compaction(head=4), Compaction(head=6, system_prompt="Review.")


@requirement("R344")
@pytest.mark.parametrize(
    ("mode", "named", "chosen"),
    [
        ("code", "c", CODE),
        (" CODE ", "c", CODE),
        ("code_review_fast", "r", REVIEW),
        ("my code", "c", CODE),
        ("ghost", "nowhere", PLAIN),
        ("talk", "c", CODE),
    ],
)
def test_the_mode_picks_the_profile(mode: str, named: str, chosen: Compaction) -> None:
    by_mode = {"code": "c", "code_review": "r", "ghost": "nowhere"}
    policy = SummaryPolicy(PLAIN, {"c": CODE, "r": REVIEW}, by_mode, default_profile="c")
    assert profile_of(policy, mode) == (named, chosen)


@requirement("R344")
def test_without_profiles_what_holds_for_all_modes_counts() -> None:
    assert profile_of(SummaryPolicy(PLAIN), "anything") == (None, PLAIN)


def test_a_profile_has_its_own_settings_and_for_the_rest_those_for_all_modes() -> None:
    given = RollingSummarySetting.model_validate(
        {
            "enabled": True,
            "tail_messages_to_keep": 3,
            "profiles": {"c": {"head_messages_to_keep": 5, "system_prompt": "Code."}, "off": {"enabled": False}},
            "profiles_by_mode": {" Code ": "c"},
        }
    ).policy()
    assert given.by_mode == {"code": "c"}
    assert given.profiles["c"] == Compaction(enabled=True, head=5, tail=3, system_prompt="Code.")
    assert given.profiles["off"] == Compaction(enabled=False, tail=3)


def test_the_defaults_are_those_that_are_documented() -> None:
    made = RollingSummarySetting().policy()
    assert made.base == Compaction()
    base = made.base
    assert (base.enabled, base.cooldown, base.head, base.tail, base.least, base.most) == (False, 60, 2, 12, 12, 48)
    assert (base.max_output_tokens, base.temperature, made.deadline) == (900, 0.1, 8)
