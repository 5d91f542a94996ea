"""The calculator: exact where it can be, bounded always, and never a program."""

import ast
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.tools.base import ToolError
from app.tools.builtin.calculator import LONGEST, Calculator, calculate
from tests.tools.running import fault, run


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1250 * 1.19) / 3", 1250 * 1.19 / 3),
        ("2 ** 10", 1024),
        ("2^10", 1024),
        ("-7 // 2", -4),
        ("7 % 3", 1),
        ("sqrt(2) ** 2", math.sqrt(2) ** 2),
        ("max(1, 2, 3) + abs(-4)", 7),
        ("round(2.675, 2)", 2.67),
        ("pi", math.pi),
        ("123456789012345678901234567890 + 1", 123456789012345678901234567891),
    ],
)
def test_arithmetic_is_worked_out(expression: str, value: float) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "().__class__",
        "open('x')",
        "[1 for _ in range(9)]",
        "lambda: 1",
        "'a' * 9",
        "True + 1",
        "x + 1",
        "sqrt(x=2)",
        "sqrt.__self__",
        "1 if 1 else 2",
        "",
        "1 +",
        "1; 2",
    ],
)
def test_what_is_no_arithmetic_is_refused(expression: str) -> None:
    with pytest.raises(ToolError):
        calculate(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "9 ** 9 ** 9",
        "2 ** 5000",
        "1e308 * 10",
        "10.0 ** 400",
        "1 / 0",
        "sqrt(-1)",
        "(-8) ** 0.5",
        "(" * 500 + "1" + ")" * 500,
    ],
)
def test_what_has_no_end_or_no_value_is_refused(expression: str) -> None:
    with pytest.raises(ToolError):
        calculate(expression)


def test_what_was_parsed_in_the_same_moment_as_something_else_is_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def miscounts(*_: Any, **__: Any) -> ast.Expression:
        monkeypatch.undo()
        raise SystemError

    monkeypatch.setattr(ast, "parse", miscounts)
    assert calculate("2 + 2") == 4


@given(st.text(alphabet="0123456789+-*/%()., esqrtminaxpow^", max_size=40))
def test_any_text_gives_a_finite_number_or_a_refusal(expression: str) -> None:
    try:
        value = calculate(expression)
    except ToolError:
        return
    assert math.isfinite(value)


async def test_the_tool_answers_and_tells_what_is_wrong() -> None:
    assert (await run(Calculator(), {"expression": "2 + 2"})).output == {"value": 4}
    assert fault(await run(Calculator(), {"expression": "1/0"})) == ("TOOL_EXECUTION_FAILED", "It divides by zero.")
    assert fault(await run(Calculator(), {"expression": "1" * (LONGEST + 1)}))[0] == "TOOL_ARGUMENTS_INVALID"
