"""The one boundary for text: what a database or UTF-8 can't hold is replaced, and nothing else is touched."""

import re
from typing import Any, Final

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
REPLACEMENT: Final = "\ufffd"


def clean_text(text: str) -> str:
    """Replace NUL and lone surrogates by U+FFFD; the same object comes back when there is nothing to replace."""
    return _UNSTORABLE.sub(REPLACEMENT, text) if _UNSTORABLE.search(text) else text


def clean(value: Any) -> tuple[Any, bool]:
    """Clean every text in a JSON value, keys included; tells whether anything was replaced."""
    if isinstance(value, str):
        cleaned = clean_text(value)
        return cleaned, cleaned is not value
    if isinstance(value, list):
        pairs = [clean(entry) for entry in value]
        return [entry for entry, _ in pairs], any(changed for _, changed in pairs)
    if isinstance(value, dict):
        entries = {clean_text(key): clean(entry) for key, entry in value.items()}
        changed = any(flag for _, flag in entries.values()) or any(clean_text(key) is not key for key in value)
        return {key: entry for key, (entry, _) in entries.items()}, changed
    return value, False


class Growing:
    """A text that grows by pieces and holds their letters alone.

    A list holds every piece with 50 bytes around it, and so does `StringIO` until it is read; adding to a string that
    is an attribute copies the whole of it.
    """

    __slots__ = ("_letters",)

    def __init__(self, text: str = "") -> None:
        """Begin with a text."""
        self._letters = bytearray()
        self.add(text)

    def add(self, piece: str) -> None:
        """Let the text go on with a piece, which may be half a character."""
        self._letters += piece.encode("utf-8", "surrogatepass")

    def __str__(self) -> str:
        return self._letters.decode("utf-8", "surrogatepass")

    def __bool__(self) -> bool:
        return bool(self._letters)
