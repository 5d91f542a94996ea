"""A text as people read it: tricks of writing that hide a word from a pattern are undone."""

import unicodedata
from typing import Final

_UNSEEN: Final = frozenset({"Cf", "Cc"})
_LOOKALIKES: Final = str.maketrans("аеорсухіѕԁɡӏАВСЕНІЈКМОРЅТХУ", "aeopcyxisdglABCEHIJKMOPSTXY")


def plain(text: str) -> str:
    """Give the text with one form for each character, without those that nobody sees."""
    if text.isascii():
        return text
    shown = unicodedata.normalize("NFKC", text)
    return "".join(char for char in shown if char in "\n\t" or unicodedata.category(char) not in _UNSEEN)


def latin(text: str) -> str:
    """Give the plain text with letters that look like Latin ones as those, where it has Latin letters besides."""
    found = plain(text)
    return found.translate(_LOOKALIKES) if any("a" <= char <= "z" for char in found.lower()) else found
