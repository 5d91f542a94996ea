"""The byte splitter: line ends, cuts, comments, limits."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.providers.sse import EventTooLargeError, RawEvent, SseSplitter


def split(*pieces: bytes, limit: int = 1 << 20) -> list[RawEvent]:
    splitter = SseSplitter(limit)
    events = [event for piece in pieces for event in splitter.feed(piece)]
    return events + splitter.end()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_end_at_lf_crlf_and_cr(end: bytes) -> None:
    data = end.join([b"event: a", b"data: 1", b"", b"data: 2", b"data: 3", b"", b""])

    assert split(data) == [("a", b"1"), ("", b"2\n3")]


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"])
def test_no_other_sign_ends_a_line(sign: str) -> None:
    data = f"data: a{sign}b\n\n".encode()

    assert split(data) == [("", f"a{sign}b".encode())]


def test_a_byte_order_mark_at_the_start_is_dropped_and_a_later_one_is_kept() -> None:
    assert split(b"\xef\xbb\xbfdata: 1\n\ndata: \xef\xbb\xbf\n\n") == [("", b"1"), ("", b"\xef\xbb\xbf")]


def test_comments_unknown_fields_and_events_without_data_give_nothing() -> None:
    data = b": keep-alive\n\nid: 7\n\nretry: 10\n\ndata:\n\ndata: \n\nevent: ping\n\nfoo: bar\n\ndata: 1\n\n"

    assert split(data) == [("", b"1")]


def test_a_field_named_error_is_an_event_of_that_name() -> None:
    assert split(b'error: {"code": 500}\n\ndata: 1\n\n') == [("error", b'{"code": 500}'), ("", b"1")]


def test_the_name_of_an_event_without_data_does_not_leak_into_the_next_one() -> None:
    assert split(b"event: ping\n\ndata: 1\n\n") == [("", b"1")]


def test_one_leading_space_of_a_value_is_dropped_and_no_more() -> None:
    assert split(b"data:1\n\ndata: 1\n\ndata:  1\n\n") == [("", b"1"), ("", b"1"), ("", b" 1")]


def test_a_last_event_without_its_blank_line_is_given_at_the_end() -> None:
    assert split(b"data: 1\n\ndata: [DONE]") == [("", b"1"), ("", b"[DONE]")]


def test_an_event_is_given_as_soon_as_its_blank_line_is_there_also_when_lines_end_in_cr() -> None:
    splitter = SseSplitter()

    assert splitter.feed(b"data: 1\r\r") == [("", b"1")]
    assert splitter.feed(b"\ndata: 2\r\n\r\n") == [("", b"2")]


@pytest.mark.parametrize(
    "pieces",
    [
        (b"data: " + b"x" * 65 + b"\n\n",),
        (b"data: " + b"x" * 40, b"x" * 40),
        (b"data: " + b"x" * 40 + b"\n", b"data: " + b"x" * 40 + b"\n"),
    ],
)
def test_an_event_over_the_limit_is_refused_before_it_is_whole(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(EventTooLargeError):
        split(*pieces, limit=64)


def test_many_events_may_be_larger_together_than_the_limit_of_one() -> None:
    assert len(split(b"data: xxxxxxxx\n\n" * 100, limit=64)) == 100


def test_a_comment_is_no_held_data_and_a_part_of_an_event_is() -> None:
    splitter = SseSplitter()
    splitter.feed(b": keep")
    before = splitter.held
    splitter.feed(b"-alive\n")
    splitter.feed(b"data: abc")

    assert (before, splitter.held) == (0, 9)


STREAM = (
    b"\xef\xbb\xbf: hello\r\n\r\nevent: a\r\ndata: \xf0\x9f\x8c\x8d\r\n\r\n"
    b"data: 1\ndata: 2\n\nid: 3\rdata: \xe2\x80\xa8x\r\rdata:\n\ndata: [DONE]"
)


def test_the_events_are_the_same_wherever_the_bytes_are_cut() -> None:
    whole = split(STREAM)

    assert whole == [("a", "🌍".encode()), ("", b"1\n2"), ("", "\u2028x".encode()), ("", b"[DONE]")]
    for cut in range(len(STREAM) + 1):
        assert split(STREAM[:cut], STREAM[cut:]) == whole
    assert split(*(STREAM[place : place + 1] for place in range(len(STREAM)))) == whole


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_the_events_are_the_same_for_any_set_of_cuts(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]

    assert split(*(STREAM[a:b] for a, b in itertools.pairwise(places))) == split(STREAM)


USUAL = st.tuples(st.sampled_from(["", "a", "message"]), st.text(st.characters(exclude_characters="\r\n"), min_size=1))


@given(st.lists(USUAL, min_size=1, max_size=5), st.integers(0, 200))
def test_events_of_the_usual_form_are_the_same_whole_and_cut(events: list[tuple[str, str]], cut: int) -> None:
    lines = [f"event: {name}\ndata: {data}\n\n" if name else f"data: {data}\n\n" for name, data in events]
    stream = "".join(lines).encode("utf-8", "replace")

    assert split(stream) == split(stream[:cut], stream[cut:]) == split(*(bytes([byte]) for byte in stream))
