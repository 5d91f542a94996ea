"""Arithmetic that a model need not do in its head: an expression is read, never run as a program."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from app.domain.tools import ToolSpec
from app.tools.base import ToolContext, ToolError

Number = int | float
LONGEST: Final = 1000
MOST_BITS: Final = 4096
"""No whole number grows past this, so no expression takes long."""

_BINARY: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: Final[Mapping[type[ast.unaryop], Callable[[Any], Any]]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_NAMES: Final[Mapping[str, float]] = {"pi": math.pi, "e": math.e, "tau": math.tau}
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "abs": abs, "min": min, "max": max, "round": round, "sqrt": math.sqrt, "exp": math.exp, "log": math.log,
    "log2": math.log2, "log10": math.log10, "sin": math.sin, "cos": math.cos, "tan": math.tan, "asin": math.asin,
    "acos": math.acos, "atan": math.atan, "atan2": math.atan2, "floor": math.floor, "ceil": math.ceil,
    "hypot": math.hypot, "degrees": math.degrees, "radians": math.radians, "gcd": math.gcd,
}  # fmt: skip


class Calculator:
    """Works out an arithmetic expression."""

    spec = ToolSpec(
        name="calculator",
        description=(
            "Works out an arithmetic expression exactly, such as (1250 * 1.19) / 3 or sqrt(2) ** 3. Operators: "
            f"+ - * / // % **. Functions: {', '.join(_FUNCTIONS)}. Constants: {', '.join(_NAMES)}."
        ),
        input_schema={
            "type": "object",
            "properties": {"expression": {"type": "string", "minLength": 1, "maxLength": LONGEST}},
            "required": ["expression"],
            "additionalProperties": False,
        },
    )

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Give the value; ToolError for what is no arithmetic, or too large."""
        del context
        return {"value": calculate(str(arguments["expression"]))}


def calculate(expression: str) -> Number:
    """Work an expression out. ToolError says what is wrong with it."""
    if len(expression) > LONGEST:
        message = f"The expression is longer than {LONGEST} characters."
        raise ToolError(message)
    try:
        value = _value(_read(expression.strip().replace("^", "**")))
    except ZeroDivisionError:
        message = "It divides by zero."
        raise ToolError(message) from None
    except (SyntaxError, RecursionError, MemoryError, ValueError, TypeError, OverflowError) as error:
        if isinstance(error, ValueError | TypeError | OverflowError) and not isinstance(error, SyntaxError):
            message = f"It can't be worked out: {error}."
        else:
            message = "That is no arithmetic expression."
        raise ToolError(message) from None
    if isinstance(value, float) and not math.isfinite(value):
        message = "The result is not a number that can be written."
        raise ToolError(message)
    return value


def _read(expression: str, tries: int = 10) -> ast.expr:
    try:
        return ast.parse(expression, mode="eval").body
    except SystemError:
        # Python before 3.11.8 miscounts where a thread parses in the same moment as another (gh-106905).
        if tries == 1:
            raise
        return _read(expression, tries - 1)


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _bounded(number)
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _UNARY:
            return _bounded(_UNARY[type(sign)](_value(operand)))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            return _bounded(_BINARY[type(sign)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*map(_value, arguments)))
    message = f"'{ast.unparse(node)[:60]}' is not arithmetic that this tool knows."
    raise ToolError(message)


def _power(base: Number, exponent: Number) -> Number:
    whole = isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1
    if whole and int(base).bit_length() * abs(exponent) > MOST_BITS:
        message = "The result would be too large."
        raise ToolError(message)
    value = base**exponent
    if isinstance(value, complex):
        message = "The result is no real number."
        raise ToolError(message)
    return _bounded(value)


def _bounded(value: Any) -> Number:
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        message = "The result would be too large."
        raise ToolError(message)
    if not isinstance(value, int | float):
        message = "The result is no number."
        raise ToolError(message)
    return value
