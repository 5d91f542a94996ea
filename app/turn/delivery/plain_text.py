"""A reply as plain text, for voice and logs: what a reader of the Markdown would see, without its marks."""

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MARKS = frozenset("*_`#[]<>|~\\&-+=!")


class PlainText:
    """Renders Markdown (CommonMark with tables and strike-through) as text. Make one and keep it."""

    @cached_property
    def _parser(self) -> "MarkdownIt":
        """The parser, set up when it is first needed; tags of HTML are dropped and their text is kept."""
        from markdown_it import MarkdownIt  # noqa: PLC0415 - a process starts sooner without

        return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])

    async def open(self) -> None:
        """Get ready, in a thread: to import the parser takes so long that turns would notice."""
        await asyncio.to_thread(lambda: self._parser)

    def render(self, text: str) -> str:
        """Give the plain form; blank text gives the empty string."""
        if MARKS.isdisjoint(text) and "\n" not in text:
            return text.strip()
        page = _Page()
        for token in self._parser.parse(text):
            page.take(token)
        return "\n\n".join(page.blocks).strip().replace("\u00a0", " ")


class _Page:
    """Blocks of text, filled token by token. A list or a table is one block of lines."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self._lines: list[str] = []
        self._cells: list[str] | None = None
        self._numbers: list[int | None] = []
        self._marker = ""
        self._takers: dict[str, Callable[[Token], None]] = {
            "bullet_list_open": self._open_list,
            "ordered_list_open": self._open_list,
            "bullet_list_close": self._close_list,
            "ordered_list_close": self._close_list,
            "list_item_open": self._open_item,
            "tr_open": self._open_row,
            "tr_close": self._close_row,
            "table_close": self._close_table,
            "inline": lambda token: self._text(_inline(token)),
            "fence": lambda token: self._text(token.content.rstrip("\n")),
            "code_block": lambda token: self._text(token.content.rstrip("\n")),
        }

    def take(self, token: "Token") -> None:
        taker = self._takers.get(token.type)
        if taker is not None:
            taker(token)

    def _text(self, text: str) -> None:
        if self._cells is not None:
            self._cells.append(text)
        elif self._numbers:
            self._lines.append(self._marker + text)
            self._marker = " " * len(self._marker)
        elif text:
            self.blocks.append(text)

    def _open_list(self, token: "Token") -> None:
        first = int(token.attrs.get("start", 1)) if token.type == "ordered_list_open" else None
        self._numbers.append(first)

    def _close_list(self, token: "Token") -> None:
        del token
        self._numbers.pop()
        if not self._numbers:
            self._flush()

    def _open_item(self, token: "Token") -> None:
        del token
        indent, number = "  " * (len(self._numbers) - 1), self._numbers[-1]
        self._marker = f"{indent}- " if number is None else f"{indent}{number}. "
        self._numbers[-1] = None if number is None else number + 1

    def _open_row(self, token: "Token") -> None:
        del token
        self._cells = []

    def _close_row(self, token: "Token") -> None:
        del token
        self._lines.append("\t".join(self._cells or []))
        self._cells = None

    def _close_table(self, token: "Token") -> None:
        del token
        if not self._numbers:
            self._flush()

    def _flush(self) -> None:
        self.blocks.append("\n".join(self._lines))
        self._lines = []


def _inline(token: "Token") -> str:
    shown = {"text", "code_inline", "image"}
    pieces = (
        child.content if child.type in shown else "\n" if child.type in {"softbreak", "hardbreak"} else ""
        for child in token.children or []
    )
    return "".join(pieces)
