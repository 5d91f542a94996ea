"""Where sentences end."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.guardrails.sentences import LONGEST, ends


def cut(text: str) -> list[str]:
    places = [0, *ends(text), len(text)]
    return [text[a:b] for a, b in pairwise(places) if a != b]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two? Three! Fo", ["One. ", "Two? ", "Three! ", "Fo"]),
        ("One. ", ["One. "]),
        ("It is 3.14, see a.b/c?x=1!y for more", ["It is 3.14, see a.b/c?x=1!y for more"]),
        ("Fruit, e.g. apples, etc. and more. Yes", ["Fruit, e.g. apples, etc. and more. ", "Yes"]),
        ("He said “No.” Then he left", ["He said “No.” ", "Then he left"]),
        ("Wait... What", ["Wait... ", "What"]),
        ("a line\nand more", ["a line\n", "and more"]),
        ("Done. \n\nNew", ["Done. \n\n", "New"]),
        ("你好。我很好！再见", ["你好。", "我很好！", "再见"]),
        ("यह है। वह", ["यह है। ", "वह"]),
        ("هل هذا؟ نعم", ["هل هذا؟ ", "نعم"]),
        ("write ada@example.com. Now", ["write ada@example.com. ", "Now"]),
    ],
)
def test_sentences_end_by_the_rules_of_their_script(text: str, sentences: list[str]) -> None:
    assert cut(text) == sentences


def test_what_may_still_go_on_is_not_over() -> None:
    assert list(ends("It costs 3.")) == []
    assert list(ends("Is it? ")) == []
    assert list(ends("Is it?\n")) == [7]


def test_a_sentence_without_an_end_is_ended_at_a_space() -> None:
    text = "word " * 1000
    places = list(ends(text))
    assert places
    assert all(text[place - 1] == " " for place in places)
    assert max(b - a for a, b in pairwise([0, *places])) <= LONGEST
    assert list(ends("x" * (LONGEST + 1))) == [LONGEST]


@given(st.text(alphabet="aB .!?\n。”1", max_size=60), st.text(alphabet="aB .!?\n。”1", max_size=20))
def test_an_end_stays_an_end_whatever_follows(text: str, more: str) -> None:
    whole = set(ends(text + more))
    start = max(whole & set(range(len(text) + 1)), default=0)
    assert all(place in whole or place > start for place in ends(text))
