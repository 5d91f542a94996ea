"""Files of text that begin with YAML between two lines of dashes, as skills and personas of folders do."""

import re
from typing import Final

_FRONT: Final = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)(.*)\Z", re.DOTALL)


def parted(text: str) -> tuple[str, str] | None:
    """Give the YAML and the text behind it; None where a text does not begin so."""
    found = _FRONT.match(text)
    return None if found is None else (found[1], found[2])
