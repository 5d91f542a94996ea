"""Parses one document from standard input and writes its sections as JSON: `[[heading, text], …]`.

It is run as `python -m app.memory.forms CONTENT_TYPE LONGEST`, a process of its own, and limits its memory and
processor time itself. Of a text that is too long it writes a little more than may be, so that whoever reads sees it.
"""

import io
import resource
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from app.domain.jsontext import dumps

MEMORY: Final = 2 << 30
SECONDS: Final = 60
UNREAD: Final = frozenset({"script", "style", "noscript", "template", "svg", "head", "iframe", "object"})
HEADINGS: Final = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
INLINE: Final = frozenset({
    "a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "dfn", "em", "i", "kbd", "mark", "q", "s", "samp", "small",
    "span", "strong", "sub", "sup", "time", "u", "var", "wbr", "font", "label",
})  # fmt: skip

Part = tuple[str | None, str]


def markdown(content: bytes) -> Iterator[Part]:
    """Give the text as it was written, cut at its headings."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - within the limits, as below

    text = content.decode("utf-8", "replace")
    lines = text.splitlines(keepends=True)
    heading, begin = None, 0
    tokens = MarkdownIt("commonmark").parse(text)
    for place, token in enumerate(tokens):
        if token.type != "heading_open" or token.level or token.map is None:
            continue
        yield heading, "".join(lines[begin : token.map[0]])
        heading, begin = tokens[place + 1].content.strip() or None, token.map[1]
    yield heading, "".join(lines[begin:])


def html(content: bytes) -> Iterator[Part]:
    """Give the text that a reader of the page sees, cut at its headings."""
    from selectolax.lexbor import LexborHTMLParser  # noqa: PLC0415

    heading: str | None = None
    pieces: list[str] = []
    waiting: list[Any] = [LexborHTMLParser(content.decode("utf-8", "replace")).body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            pieces.append(node)
        elif node is None or node.tag in UNREAD:
            continue
        elif node.tag == "-text":
            pieces.append(" ".join((node.text_content or "").split("\n")))
        elif node.tag in HEADINGS:
            yield heading, _tidy(pieces)
            heading, pieces = " ".join(node.text(separator=" ").split()) or None, []
        else:
            block = node.tag not in INLINE
            pieces.append("\n" if block else "")
            waiting.append("\n" if block else "")
            waiting.extend(reversed(list(node.iter(include_text=True))))
    yield heading, _tidy(pieces)


def pdf(content: bytes) -> Iterator[Part]:
    """Give the text of each page."""
    from pypdf import PdfReader  # noqa: PLC0415

    for number, page in enumerate(PdfReader(io.BytesIO(content)).pages, start=1):
        yield f"Page {number}", page.extract_text().encode("utf-8", "replace").decode()


FORMS: Final[dict[str, Callable[[bytes], Iterator[Part]]]] = {
    "text/markdown": markdown,
    "text/html": html,
    "application/pdf": pdf,
}


def bounded(parts: Iterator[Part], longest: int) -> Iterator[Part]:
    """Give the parts until they are longer than they may be."""
    for heading, text in parts:
        shown = text[: longest + 1]
        yield heading, shown
        longest -= len(shown)
        if longest < 0:
            return


def main() -> None:
    """Read, parse, write."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    form, longest = sys.argv[1], int(sys.argv[2])
    sys.stdout.buffer.write(dumps(list(bounded(FORMS[form](sys.stdin.buffer.read()), longest))))


def _tidy(pieces: list[str]) -> str:
    lines = (" ".join(line.split()) for line in "".join(pieces).splitlines())
    return "\n".join(line for line in lines if line)


if __name__ == "__main__":
    main()
