"""The manifest of requirements and the tests agree: nothing is called finished that no test proves.

The tests are found by reading their source, so the answer is the same in every worker and for any selection of tests.
"""

import ast
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import get_args

import pytest

from tests.requirements import Status, manifest, requirement
from tests.syntax import parsed

TESTS = Path(__file__).parent

SECTIONS = {
    "A": (1, 22), "B": (23, 52), "C": (53, 60), "D": (61, 72), "E": (73, 92), "F": (93, 105), "G": (106, 120),
    "H": (121, 134), "I": (135, 179), "J": (180, 188), "K": (189, 199), "L": (200, 216), "M": (217, 234),
    "N": (235, 245), "O": (246, 254), "P": (255, 290), "Q": (291, 306), "R": (307, 339), "S": (340, 350),
}  # fmt: skip


def claims(source: str) -> Iterator[tuple[str, str]]:
    """Give (test name, requirement id) for each id in a `@requirement(...)` above a test function."""
    for node in ast.walk(parsed(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test_"):
            continue
        for decorator in node.decorator_list:
            match decorator:
                case ast.Call(func=ast.Name(id="requirement") | ast.Attribute(attr="requirement"), args=args):
                    for arg in args:
                        yield node.name, text_of(arg)
                case _:
                    pass


def text_of(node: ast.expr) -> str:
    """Give a literal's text; anything else is given as it is written, which no id looks like."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case _:
            return ast.unparse(node)


def all_claims() -> dict[str, set[str]]:
    """Give, for each id that some test names, the tests that name it."""
    found: dict[str, set[str]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        for test, name in claims(file.read_text(encoding="utf-8")):
            found.setdefault(name, set()).add(f"{file.relative_to(TESTS)}::{test}")
    return found


def test_the_manifest_holds_each_id_once_and_in_its_section() -> None:
    expected = chain.from_iterable(
        ((f"R{number}", section) for number in range(first, last + 1)) for section, (first, last) in SECTIONS.items()
    )
    assert [(entry.id, entry.section) for entry in manifest().values()] == list(expected)


def test_each_requirement_has_a_known_status_and_a_sentence() -> None:
    entries = manifest().values()
    assert [entry.id for entry in entries if entry.status not in get_args(Status)] == []
    assert [entry.id for entry in entries if not entry.says.endswith(".")] == []
    assert [entry.id for entry in entries if entry.note and not entry.note.endswith(".")] == []


def test_no_two_requirements_say_the_same() -> None:
    sentences = [entry.says for entry in manifest().values()]
    assert sorted(sentences) == sorted(set(sentences))


def test_only_forged_tools_are_left_unbuilt() -> None:
    assert [entry.id for entry in manifest().values() if entry.status == "not_built"] == ["R316"]


def test_tests_name_only_ids_that_the_manifest_has() -> None:
    assert {name: tests for name, tests in all_claims().items() if name not in manifest()} == {}


def test_each_finished_requirement_has_a_test() -> None:
    proved = all_claims()
    assert [entry.id for entry in manifest().values() if entry.status == "finished" and entry.id not in proved] == []


def test_nothing_that_is_not_built_is_proved_by_a_test() -> None:
    assert [name for name in all_claims() if name in manifest() and manifest()[name].status == "not_built"] == []


def test_an_unknown_id_is_refused_where_it_is_named() -> None:
    with pytest.raises(ValueError, match="no such requirement: R351"):
        requirement("R1", "R351")


def test_the_decorator_hands_back_the_test_it_was_given() -> None:
    async def test() -> None: ...

    assert requirement("R23", "R24")(test) is test


def test_claims_are_found_above_sync_and_async_tests() -> None:
    source = """
@requirement("R1", "R2")
def test_a(): ...
@requirement("R3")
async def test_b(): ...
@requirement("R4")
def not_a_test(): ...
"""
    assert list(claims(source)) == [("test_a", "R1"), ("test_a", "R2"), ("test_b", "R3")]
