"""The numbered statements that Fermata is measured by, and the decorator by which a test names those it proves.

The statements stand in requirements.toml, so that marking one as finished is a change of one word.
"""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import pytest

type_of_test = TypeVar("type_of_test", bound=Callable[..., Any])

Status = Literal["open", "finished", "not_built"]

MANIFEST: Final = Path(__file__).with_name("requirements.toml")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One statement: its id (R1 to R350), the section it belongs to, and what is known of it."""

    id: str
    section: str
    status: str
    says: str
    note: str = ""


@cache
def manifest() -> dict[str, Requirement]:
    """Give every requirement by its id, in the order of the file."""
    sections = tomllib.loads(MANIFEST.read_text(encoding="utf-8"))
    return {
        name: Requirement(id=name, section=section, **entry)
        for section, entries in sections.items()
        for name, entry in entries.items()
        if name != "title"
    }


def requirement(*ids: str) -> Callable[[type_of_test], type_of_test]:
    """Say which requirements a test proves; an id that the manifest does not have is an error at once."""
    unknown = [name for name in ids if name not in manifest()]
    if unknown or not ids:
        message = f"no such requirement: {', '.join(unknown) or '(none named)'}"
        raise ValueError(message)

    def mark(test: type_of_test) -> type_of_test:
        marked: type_of_test = pytest.mark.requirement(*ids)(test)
        return marked

    return mark
