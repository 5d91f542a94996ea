"""JSON and text that providers get slightly wrong."""

import pytest

from app.providers.wire import TextJoiner, dumps, is_whole, join_surrogates, loads, parse_arguments


def test_a_lone_surrogate_is_read_where_a_strict_reader_refuses() -> None:
    assert loads(b'{"a": "\\ud83d"}') == {"a": "\ud83d"}


@pytest.mark.parametrize("data", [b"", b"{", b'{"a": 1} {"b": 2}', b"data"])
def test_what_is_not_one_document_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        loads(data)


def test_halves_of_a_character_in_two_deltas_are_joined() -> None:
    joiner = TextJoiner()

    assert [joiner.push("a\ud83d"), joiner.push("\ude00b"), joiner.flush()] == ["a", "😀b", ""]


def test_halves_that_find_no_partner_become_replacement_characters() -> None:
    joiner = TextJoiner()

    assert joiner.push("\ude00x\ud83d") == "\ufffdx"
    assert joiner.push("y\ud83d") == "\ufffdy"
    assert joiner.flush() == "\ufffd"


def test_text_without_halves_is_the_same_object() -> None:
    joiner = TextJoiner()
    text = "naïve 😀"

    assert joiner.push(text) is text


def test_surrogates_in_one_text_are_joined() -> None:
    assert join_surrogates("\ud83d\ude00\ud83d") == "😀\ufffd"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ("{}", {}),
        ('{"a": "\\ud83d"}', {"a": "\ufffd"}),
        ('{"a": "\ud83d\ude00"}', {"a": "😀"}),
        ('{"a": 123456789012345678901234567890}', {"a": 1.2345678901234568e29}),
        ("[1]", None),
        ("1", None),
        ('{"a": NaN}', None),
        ('{"a": 1', None),
        ("not json", None),
        ('{"a": 1}{"b": 2}', None),
    ],
)
def test_arguments_are_one_object_that_can_be_written_again_or_nothing(text: str, value: object) -> None:
    assert parse_arguments(text) == value
    if value is not None:
        assert loads(dumps(value)) == value


def test_lone_surrogates_are_replaced_when_a_document_is_written() -> None:
    assert loads(dumps({"a": "x\ud83d"})) == {"a": "x\ufffd"}


@pytest.mark.parametrize(("data", "whole"), [(b"[DONE]", True), (b'{"a":1}', True), (b'{"a":', False), (b"{", False)])
def test_a_tail_is_whole_when_it_parses(data: bytes, *, whole: bool) -> None:
    assert is_whole(data) is whole
