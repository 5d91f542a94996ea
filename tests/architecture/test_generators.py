"""An asynchronous generator closes the one it reads: left to the collector, that would end behind the outcome."""

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.test_size import ROOT
from tests.syntax import parsed

READ_WITH_THEIR_RESPONSE = "aiter_"
"""What httpx calls its readers of a body; they end with the response that is closed around them."""


def unclosed(source: str) -> Iterator[str]:
    """Give the name of each asynchronous generator that makes one in the head of a loop, where nobody can close it."""
    for function in ast.walk(parsed(source)):
        if not isinstance(function, ast.AsyncFunctionDef):
            continue
        inside = list(ast.walk(function))
        loops = [node for node in inside if isinstance(node, ast.AsyncFor) and not _ends_by_itself(node.iter)]
        if loops and any(isinstance(node, ast.Yield) for node in inside):
            yield function.name


def _ends_by_itself(read: ast.expr) -> bool:
    made = read.value if isinstance(read, ast.Await) else read
    if not isinstance(made, ast.Call):
        return True
    return isinstance(made.func, ast.Attribute) and made.func.attr.startswith(READ_WITH_THEIR_RESPONSE)


def test_no_generator_makes_another_where_it_can_not_be_closed() -> None:
    found = {
        f"{file.relative_to(ROOT).as_posix()}::{name}"
        for file in sorted((ROOT / "app").rglob("*.py"))
        for name in unclosed(file.read_text(encoding="utf-8"))
    }
    assert found == set()


@pytest.mark.parametrize(
    ("read", "found"),
    [("other()", ["one"]), ("await other()", ["one"]), ("items", []), ("response.aiter_raw()", [])],
)
def test_a_generator_in_the_head_of_a_loop_is_found(read: str, found: list[str]) -> None:
    assert list(unclosed(f"async def one():\n    async for item in {read}:\n        yield item\n")) == found
