"""A model's own tokenizer, read from a `tokenizer.json` on this machine. Nothing is ever fetched.

It needs the extra package `tokenizers`, which is imported only when a model has such a file.
"""

from collections import OrderedDict
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_REMEMBERED: Final = 4096
_PIECE: Final = 100_000
"""Longer texts are counted in pieces of so many characters: some tokenizers take a time that grows with the square."""


class FileTokenizer:
    """See `app.conversation.tokens.TokenCounter`. It remembers the counts of texts, since a history comes again."""

    exact = True

    def __init__(self, path: Path) -> None:
        """Read the file; ConfigurationError when it or the package is not there, or it is no tokenizer."""
        self._encoder = _read(path)
        self._known: OrderedDict[bytes, int] = OrderedDict()

    def text(self, text: str) -> int:
        """See `TokenCounter.text`."""
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        count = self._known.get(key)
        if count is None:
            count = sum(self._count(text[place : place + _PIECE]) for place in range(0, len(text), _PIECE))
        self._known[key] = count
        self._known.move_to_end(key)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return count

    def _count(self, text: str) -> int:
        return len(self._encoder.encode(text, add_special_tokens=False).ids)


def _read(path: Path) -> "Tokenizer":
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - an extra that most have no use for
    except ImportError:
        message = f"Counting with {path} needs a package that is not installed: pip install tokenizers."
        raise ConfigurationError(message) from None
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the package raises nothing more precise
        message = f"The tokenizer {path} can't be read ({error}); name a tokenizer.json, or leave it out."
        raise ConfigurationError(message) from None
