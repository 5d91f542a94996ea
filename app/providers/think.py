"""Takes reasoning out of a text in which a model marks it with tags, however the deltas cut the tags."""

from typing import Final

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"


class ThinkSplitter:
    """Tells reasoning from text. What may be the beginning of a tag waits for the next delta."""

    def __init__(self) -> None:
        self._inside = False
        self._held = ""
        self._trim = False

    def push(self, delta: str) -> list[tuple[bool, str]]:
        """Give pieces as (is it reasoning, its text), none of them empty."""
        rest = self._held + delta
        self._held = ""
        pieces: list[tuple[bool, str]] = []
        while rest:
            tag = _CLOSE if self._inside else _OPEN
            before, found, after = rest.partition(tag)
            if not found:
                kept = _begun(rest, tag)
                self._held = rest[len(rest) - kept :]
                before = rest[: len(rest) - kept]
            self._add(pieces, before)
            if found:
                self._trim = self._inside
                self._inside = not self._inside
            rest = after if found else ""
        return pieces

    def flush(self) -> list[tuple[bool, str]]:
        """Give what was held back: it was no tag after all."""
        pieces: list[tuple[bool, str]] = []
        self._add(pieces, self._held)
        self._held = ""
        return pieces

    def _add(self, pieces: list[tuple[bool, str]], text: str) -> None:
        if self._trim and not self._inside:
            text = text.lstrip("\n")  # models put empty lines between the closing tag and the answer
            self._trim = not text
        if text:
            pieces.append((self._inside, text))


def _begun(text: str, tag: str) -> int:
    """Give how many of the last signs of the text may be the beginning of the tag."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if tag.startswith(text[-size:])), 0)
