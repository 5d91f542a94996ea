"""Cuts documents into chunks at headings and sentences. A chunk is the document's own words, so it can be quoted."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from app.domain.documents import Chunk
from app.memory.reading import Section

SIZE: Final = 512
"""How many characters a chunk has at most, its overlap beside."""

OVERLAP: Final = 64
"""How many characters of the sentences before are said again, so that a thought that was cut is found on both sides."""

_SENTENCE: Final = r"(?s).+?(?:[.!?…]+[\"'”’)\]]*(?=\s)|[。！？]+|\n\s*|$)"  # compiled when a document is first cut
_BREAK: Final = re.compile(r"\s")


def chunks_of(sections: Sequence[Section]) -> list[Chunk]:
    """Give the chunks of a document in order; none crosses a heading, and none is blank."""
    return [Chunk(text, section.heading) for section in sections for text in _texts(section.text)]


def _texts(text: str) -> Iterator[str]:
    held: list[str] = []
    fresh = 0
    for piece in _pieces(text):
        if fresh and fresh + len(piece) > SIZE:
            yield from _joined(held)
            held, fresh = _tail(held), 0
        held.append(piece)
        fresh += len(piece)
    if fresh:
        yield from _joined(held)


def _joined(pieces: Sequence[str]) -> Iterator[str]:
    text = "".join(pieces).strip()
    if text:
        yield text


def _tail(pieces: Sequence[str]) -> list[str]:
    """Give the last sentences that fit into the overlap."""
    kept: list[str] = []
    for piece in reversed(pieces):
        if sum(map(len, kept)) + len(piece) > OVERLAP:
            break
        kept.insert(0, piece)
    return kept


def _pieces(text: str) -> Iterator[str]:
    """Give the sentences and lines of a text, none longer than a chunk; together they are the text."""
    for found in re.finditer(_SENTENCE, text):
        piece = found[0]
        while len(piece) > SIZE:
            cut = next((place.end() for place in reversed(list(_BREAK.finditer(piece, 0, SIZE)))), SIZE)
            yield piece[:cut]
            piece = piece[cut:]
        if piece:
            yield piece
