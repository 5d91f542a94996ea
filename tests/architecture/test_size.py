"""No file and no function grows past what one can hold in mind."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.syntax import parsed

ROOT = Path(__file__).parents[2]
LINES_OF_A_FILE = 400
LINES_OF_A_FUNCTION = 60


def sources() -> list[Path]:
    return sorted(file for folder in ("app", "tests") for file in (ROOT / folder).rglob("*.py"))


def functions(source: str) -> Iterator[tuple[str, int]]:
    """Give the name and the length of each function, however deep it sits; decorators don't count."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            yield node.name, node.end_lineno - node.lineno + 1


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {
        file.relative_to(ROOT).as_posix(): len(file.read_text(encoding="utf-8").splitlines()) for file in sources()
    }
    assert lengths
    assert {name: lines for name, lines in lengths.items() if lines > LINES_OF_A_FILE} == {}


def test_no_function_is_longer_than_60_lines() -> None:
    lengths = {
        f"{file.relative_to(ROOT).as_posix()}::{name}": lines
        for file in sources()
        for name, lines in functions(file.read_text(encoding="utf-8"))
    }
    assert lengths
    assert {name: lines for name, lines in lengths.items() if lines > LINES_OF_A_FUNCTION} == {}


@pytest.mark.parametrize("start", ["def", "async def"])
def test_the_length_of_a_nested_function_is_counted(start: str) -> None:
    source = f"class A:\n    @staticmethod\n    {start} long():\n" + "        pass\n" * 60
    assert list(functions(source)) == [("long", LINES_OF_A_FUNCTION + 1)]
