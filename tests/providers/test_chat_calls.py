"""Tool calls of Chat Completions from bytes, however a server numbers, names and cuts them."""

from typing import Any

import pytest

from app.domain.messages import ToolCall
from app.providers.base import Finish
from tests.providers.chatting import calls_of, decode
from tests.providers.reading import chunk, stream, tool_delta


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        pytest.param(
            [
                {"index": 0, "id": "a", "name": "get_weather", "arguments": '{"x": 1}'},
                {"index": 0, "id": "b", "name": "get_time", "arguments": "{}"},
            ],
            [("a", "get_weather", {"x": 1}), ("b", "get_time", {})],
            id="all parallel calls at index 0",
        ),
        pytest.param(
            [
                {"index": 0, "name": "f", "arguments": '{"x": 1}'},
                {"index": 0, "name": "g", "arguments": "{}"},
                {"index": 0, "name": "g", "arguments": '{"y": 2}'},
            ],
            [("made_1", "f", {"x": 1}), ("made_2", "g", {}), ("made_3", "g", {"y": 2})],
            id="index 0 for all and no ids",
        ),
        pytest.param(
            [
                {"index": 0, "id": "a", "name": "f", "arguments": '{"x"'},
                {"index": 1, "id": "b", "name": "g", "arguments": '{"y"'},
                {"index": 0, "arguments": ": 1}"},
                {"index": 1, "arguments": ": 2}"},
            ],
            [("a", "f", {"x": 1}), ("b", "g", {"y": 2})],
            id="interleaved",
        ),
        pytest.param(
            [
                {"index": 1, "id": "a", "name": "f", "arguments": "{}"},
                {"index": 2, "id": "b", "name": "g", "arguments": "{}"},
            ],
            [("a", "f", {}), ("b", "g", {})],
            id="index begins at 1",
        ),
        pytest.param(
            [
                {"id": "a", "name": "f", "arguments": '{"x"'},
                {"arguments": ": 1}"},
                {"id": "b", "name": "g", "arguments": "{}"},
            ],
            [("a", "f", {"x": 1}), ("b", "g", {})],
            id="no index",
        ),
        pytest.param(
            [{"name": "f", "arguments": "{}"}, {"name": "f", "arguments": '{"x": 1}'}],
            [("made_1", "f", {}), ("made_2", "f", {"x": 1})],
            id="no index and no id",
        ),
        pytest.param(
            [{"index": 0, "id": "a"}, {"index": 0, "name": "f"}, {"index": 0, "arguments": "{}"}],
            [("a", "f", {})],
            id="id, name and arguments apart",
        ),
        pytest.param(
            [{"index": 0, "name": "f"}, {"index": 0, "id": "a", "arguments": "{}"}],
            [("a", "f", {})],
            id="name before id",
        ),
        pytest.param(
            [
                {"index": 0, "id": "a", "name": "f", "arguments": '{"x'},
                {"index": 0, "id": "a", "name": "f", "arguments": '": 1'},
                {"index": 0, "id": "a", "name": "f", "arguments": "}"},
            ],
            [("a", "f", {"x": 1})],
            id="id and name in every delta",
        ),
        pytest.param(
            [
                {"index": 0, "name": "f", "arguments": '{"x'},
                {"index": 0, "name": "f", "arguments": '": {}'},
                {"index": 0, "name": "f", "arguments": "}"},
            ],
            [("made_1", "f", {"x": {}})],
            id="name in every delta and no id",
        ),
        pytest.param(
            [{"index": 0, "id": "a", "name": "f", "arguments": {"x": 1}}],
            [("a", "f", {"x": 1})],
            id="arguments as an object",
        ),
        pytest.param([{"index": 0, "id": "a", "name": "f", "arguments": ""}], [("a", "f", {})], id="empty arguments"),
        pytest.param([{"index": 0, "id": "a", "name": "f", "arguments": None}], [("a", "f", {})], id="null arguments"),
        pytest.param([{"index": 0, "id": "a", "name": "f", "arguments": "null"}], [("a", "f", {})], id="null as text"),
        pytest.param([{"index": 0, "id": "a", "name": "f"}], [("a", "f", {})], id="no arguments"),
        pytest.param(
            [
                {"index": 0, "id": "same", "name": "f", "arguments": '{"x": 1}'},
                {"index": 1, "id": "same", "name": "g", "arguments": "{}"},
            ],
            [("same", "f", {"x": 1}), ("made_1", "g", {})],
            id="one id for two calls",
        ),
        pytest.param([{"index": 0, "id": "", "name": "f", "arguments": "{}"}], [("made_1", "f", {})], id="empty id"),
    ],
)
def test_calls_are_put_together_however_they_are_numbered(deltas: list[dict[str, Any]], expected: Any) -> None:
    outcome = decode(stream(*(tool_delta(**dict(delta)) for delta in deltas), chunk({}, "tool_calls")))

    assert [(call.id, call.name, call.arguments) for call in calls_of(outcome)] == expected
    assert all(call.invalid is None for call in calls_of(outcome))


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "length", None])
def test_calls_mean_tool_calls_whatever_the_server_says(finish: str | None) -> None:
    events, _ = decode(stream(tool_delta(index=0, id="a", name="f", arguments='{"x": 1}'), chunk({}, finish)))

    assert events[-1] == Finish("tool_calls", finish, "m-1", "c1")


@pytest.mark.parametrize(
    ("arguments", "finish"), [('{"city": "Ber', "length"), ("", "length"), ('{"city"', "stop"), ("[1]", "tool_calls")]
)
def test_arguments_that_are_cut_or_wrong_make_an_invalid_call(arguments: str, finish: str) -> None:
    outcome = decode(stream(tool_delta(index=0, id="a", name="f", arguments=arguments), chunk({}, finish)))

    assert calls_of(outcome) == [ToolCall("a", "f", {}, invalid=arguments)]


def test_calls_that_come_after_the_finish_reason_are_given_too() -> None:
    outcome = decode(
        stream(
            tool_delta(index=0, id="a", name="f", arguments="{}"),
            chunk({}, "tool_calls"),
            tool_delta(index=1, id="b", name="g", arguments="{}"),
        )
    )

    assert [call.id for call in calls_of(outcome)] == ["a", "b"]


def test_signatures_of_calls_are_kept_with_them() -> None:
    extra = {"google": {"thought_signature": "abc"}}
    outcome = decode(
        stream(tool_delta(index=0, id="a", name="f", arguments="{}", extra_content=extra), chunk({}, "stop"))
    )

    assert calls_of(outcome)[0].extra == {"extra_content": extra}
