"""JSON and text as they come over the wire: fast where they are right, forgiving where providers are known to slip."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from app.domain.text import REPLACEMENT, clean

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_LARGEST: Final = 2**64 - 1
_SMALLEST: Final = -(2**63)


def loads(data: bytes) -> Any:
    """Read one JSON document; ValueError when it is none.

    orjson refuses a lone surrogate escape (half an emoji in a delta) and NaN, which the standard library takes.
    """
    try:
        return orjson.loads(data)
    except ValueError:
        return json.loads(data.decode("utf-8", "replace"))


def dumps(value: Any) -> bytes:
    """Write one JSON document; lone surrogates are replaced, keys are kept in their order."""
    try:
        return orjson.dumps(value)
    except TypeError:
        cleaned, _ = clean(value)
        return json.dumps(cleaned, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def dumps_text(value: Any) -> str:
    """Write one JSON document as text."""
    return dumps(value).decode()


def count(value: Any) -> int:
    """Read a number of tokens; what is none, or not whole, or below zero, is zero."""
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return max(0, int(value)) if whole else 0


def part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Give an object inside an object; an empty one when there is none."""
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def is_whole(data: bytes) -> bool:
    """Tell whether the data of a last event without its blank line is complete."""
    if data.strip() == b"[DONE]":
        return True
    try:
        loads(data)
    except ValueError:
        return False
    return True


def parse_arguments(text: str) -> dict[str, Any] | None:
    """Read a call's arguments; None when the text is not one JSON object that can be stored and sent again."""
    try:
        value = orjson.loads(text)
    except ValueError:
        try:
            value = json.loads(join_surrogates(text), parse_constant=_refuse, parse_int=_bounded)
        except (ValueError, RecursionError):
            return None
        value, _ = clean(value)
    return value if isinstance(value, dict) else None


def join_surrogates(text: str) -> str:
    """Make characters of the surrogate halves that belong together; the others become U+FFFD."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class TextJoiner:
    """Joins halves of a character that a provider put into two deltas."""

    def __init__(self) -> None:
        self._half = ""

    def push(self, text: str) -> str:
        """Take a delta; give the text that is ready, which may be empty."""
        if not self._half and (text.isascii() or not _SURROGATE.search(text)):
            return text
        text = self._half + text
        self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._half = text[-1]
            text = text[:-1]
        return join_surrogates(text)

    def flush(self) -> str:
        """Give what is left of a character whose second half never came."""
        left = REPLACEMENT if self._half else ""
        self._half = ""
        return left


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _bounded(digits: str) -> int | float:
    value = int(digits)
    return value if _SMALLEST <= value <= _LARGEST else float(digits)
