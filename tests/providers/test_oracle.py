"""The strict oracle notices what it is there for."""

from typing import Any

import pytest

from tests.oracle import check_request

SYSTEM = {"role": "system", "content": "s"}
USER = {"role": "user", "content": "u"}
ANSWER = {"role": "assistant", "content": "a"}


def asking(*ids: str, **more: Any) -> dict[str, Any]:
    calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "r"}


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [SYSTEM, USER, ANSWER, USER],
        [USER, asking("a", "b"), result("a"), result("b"), ANSWER],
        [USER, asking("a"), result("a"), asking("b"), result("b"), SYSTEM, USER],
        [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
    ],
)
def test_a_good_list_breaks_no_rule(messages: list[dict[str, Any]]) -> None:
    assert check_request(messages) == []


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([SYSTEM], "no message besides"),
        ([SYSTEM, ANSWER], "not from the user"),
        ([USER, asking("a")], "no result right after"),
        ([USER, asking("a"), USER, result("a")], "no result right after"),
        ([USER, asking("a"), USER, result("a")], "without its call"),
        ([USER, asking("a", "b"), result("a")], "'b' has no result"),
        ([USER, result("a")], "without its call"),
        ([USER, asking("a"), result("a"), result("z")], "without its call"),
        ([USER, asking("a"), result("a"), result("a")], "a second result"),
        ([USER, asking("a", "b"), result("b"), result("a")], "not in the order"),
        ([USER, asking("a"), result("a"), asking("a"), result("a")], "used before"),
        ([USER, asking("a", "a"), result("a")], "used before"),
        ([USER, {"role": "assistant", "content": ""}], "without text and without calls"),
        ([USER, {"role": "user", "content": ""}], "without content"),
        ([{"role": "thought", "content": "x"}], "is not known"),
        ([USER, asking("a"), {"role": "tool", "tool_call_id": "a"}], "a result without content"),
        ([USER, {"role": "assistant", "tool_calls": [{"id": "a", "function": {"arguments": {}}}]}], "without a name"),
        ([USER, {"role": "assistant", "tool_calls": [{"id": "a", "function": {"arguments": {}}}]}], "no JSON text"),
    ],
)
def test_a_broken_rule_is_named(messages: list[dict[str, Any]], sentence: str) -> None:
    assert [broken for broken in check_request(messages) if sentence in broken]
