"""Whatever a server sends, a decoder gives events or a `ProviderError`, and nothing else comes out of it."""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.domain.errors import ProviderError
from app.domain.usage import Usage
from app.providers.base import CallPiece, CallsReady, CallStarted, Finish, ProviderEvent, ReasoningPiece, TextPiece
from app.providers.wire import dumps
from tests.providers.reading import read
from tests.providers.traps import TRAPS

ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(["", "error", "stop", "tool_use", "{", "\ud83d", "\x00", "x" * 50]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "id", "text", "index"]), inner)
    ),
    max_leaves=6,
)


def check(events: Sequence[ProviderEvent], error: ProviderError | None) -> None:
    """See that what came out keeps what the protocol promises, and can be stored and sent."""
    assert [type(event) for event in events].count(Finish) == (0 if error else 1)
    for event in events:
        match event:
            case TextPiece(text) | CallPiece(_, text):
                assert text
                text.encode()
            case ReasoningPiece(text, signature):
                assert text or signature
                text.encode()
            case CallStarted(place, name, _):
                assert place >= 0
                name.encode()
            case CallsReady(calls):
                assert calls
                assert all(isinstance(call.id, str) and call.id for call in calls)
                for call in calls:
                    call.name.encode()
                    dumps({"name": call.name, "arguments": dict(call.arguments), "extra": call.extra}).decode()
            case Finish():
                pass
            case usage:
                assert all(isinstance(count, int) and count >= 0 for count in usage.usage.to_json().values())
    if error is not None:
        error.message.encode()
        assert error.usage is None or isinstance(error.usage, Usage)


def decode(name: str, data: bytes) -> None:
    check(*read(TRAPS[name].dialect.decoder("house", ()), data))


def places_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Give the path of everything inside a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, entry in inner for place in places_of(entry, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    """Give the document with one of its values replaced."""
    if not path:
        return odd
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], odd)
    return copy


@given(st.data())
def test_any_value_may_be_of_any_other_type(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(TRAPS)))
    lines = TRAPS[name].data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    documents = [number for number, line in enumerate(lines) if line.startswith(b"data: {") and line.endswith(b"}")]
    for number in data.draw(st.lists(st.sampled_from(documents), max_size=3)) if documents else []:
        try:
            document = json.loads(lines[number].removeprefix(b"data: "))
        except ValueError:
            continue
        place = data.draw(st.sampled_from(places_of(document)))
        lines[number] = b"data: " + json.dumps(replaced(document, place, data.draw(ODD))).encode()

    decode(name, b"\n".join(lines))


@given(st.data())
def test_any_bytes_may_be_lost_repeated_or_replaced(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(TRAPS)))
    given_data = TRAPS[name].data
    for _ in range(data.draw(st.integers(0, 4))):
        begin = data.draw(st.integers(0, len(given_data)))
        end = data.draw(st.integers(begin, min(len(given_data), begin + 40)))
        given_data = (
            given_data[:begin] + data.draw(st.binary(max_size=20)) * data.draw(st.integers(0, 2)) + given_data[end:]
        )

    decode(name, given_data)


@given(st.sampled_from(sorted(TRAPS)), st.lists(st.binary(max_size=60), max_size=6))
def test_any_bytes_at_all_are_read_without_a_fault(name: str, pieces: list[bytes]) -> None:
    decode(name, b"".join(b"data: " + piece + b"\n\n" for piece in pieces))
