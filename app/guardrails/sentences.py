"""Where sentences end, in any script, in a text that is still being written.

The rules are those of Unicode's text segmentation (UAX 29), with one change: a full stop, a question or an exclamation
mark of the Latin kind ends a sentence only before white space, so addresses, numbers and abbreviations stay whole.
"""

import re
from collections.abc import Iterator
from typing import Final

LONGEST: Final = 2000
"""A sentence is ended after so many characters, at white space if there is some."""

_SPACED: Final = ".!?\u2024\u203c\u203d\u2047-\u2049\ufe52\ufe56\ufe57\u2026\u061e\u061f\u06d4\u0589\u1362\u1367\u1368"
_CLOSED: Final = (
    "\u3002\uff0e\uff01\uff1f\uff61\u0964\u0965\u104a\u104b\u17d4\u17d5\u1803\u1809\u1c7e\u1c7f\ua4ff\ua60e"
)
_CLOSE: Final = "\"'»”’)\\]}›」』】〉》"
_LINES: Final = "\n\r\u0085\u2028\u2029"
_END: Final = re.compile(rf"[{_LINES}]+|(?P<marks>[{_SPACED}]+)[{_CLOSE}]*\s+|[{_CLOSED}]+[{_CLOSE}]*[^\S{_LINES}]*")
_LINE: Final = re.compile(f"[{_LINES}]")
_SOFT: Final = frozenset(".\u2024\ufe52")


def ends(text: str) -> Iterator[int]:
    """Give where the sentences end that are surely over; what stands behind the last end may still go on."""
    start = 0
    for found in _END.finditer(text):
        end = found.end()
        yield from _overlong(text, start, found.start())
        if _LINE.search(found[0]) is None and (end == len(text) or _goes_on(text, found)):
            continue
        yield end
        start = end
    yield from _overlong(text, start, len(text))


def _goes_on(text: str, found: re.Match[str]) -> bool:
    """Tell whether a full stop is followed by a small letter: an abbreviation in mid-sentence."""
    marks = found["marks"]
    return marks is not None and set(marks) <= _SOFT and text[found.end()].islower()


def _overlong(text: str, start: int, stop: int) -> Iterator[int]:
    while stop - start > LONGEST:
        space = max(text.rfind(mark, start, start + LONGEST) for mark in " \t")
        start = space + 1 if space > start else start + LONGEST
        yield start
