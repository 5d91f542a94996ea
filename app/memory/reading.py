"""Reads documents of each form into sections: a heading and the text below it.

A form that has to be parsed is parsed in a process of its own (`forms`), which is ended when it takes too long: no
document may stop the service. The libraries for HTML and PDF come with the extra `documents`.
"""

import asyncio
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import Final

from app.domain.documents import ContentType
from app.domain.errors import ConfigurationError, TooLargeError, ValidationError
from app.domain.frozen import dataclass
from app.domain.jsontext import loads
from app.domain.text import clean_text

SECONDS: Final = 60.0
_NEEDS: Final = {"text/html": ("selectolax", "HTML"), "application/pdf": ("pypdf", "PDF")}


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document; `heading` is the heading above it, or the page, or None."""

    text: str
    heading: str | None = None


async def read_sections(content: str | bytes, content_type: ContentType, *, longest: int) -> list[Section]:
    """Give the sections of a document that have text.

    Raises ValidationError for what can't be read or has no text, TooLargeError for more than `longest` characters, and
    ConfigurationError when the library for the form is not installed.
    """
    if content_type == "text/plain":
        sections = [Section(content if isinstance(content, str) else content.decode("utf-8", "replace"))]
    else:
        sections = await _parsed(content if isinstance(content, bytes) else content.encode(), content_type, longest)
    length = sum(len(section.text) for section in sections)
    if length > longest:
        message = f"The document has more than {longest} characters of text; send it in parts."
        raise TooLargeError(message)
    found = [Section(clean_text(section.text), section.heading) for section in sections if section.text.strip()]
    if not found:
        message = "The document has no text that can be read; a scanned page needs text recognition first."
        raise ValidationError(message)
    return found


async def _parsed(content: bytes, content_type: ContentType, longest: int) -> list[Section]:
    package, form = _NEEDS.get(content_type, ("markdown_it", "Markdown"))
    if find_spec(package) is None:
        message = f"This service does not read {form}: install it with the extra `documents`."
        raise ConfigurationError(message)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "app.memory.forms", content_type, str(longest),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(SECONDS):
            answer, _ = await child.communicate(content)
    except TimeoutError:
        message = f"Reading the {form} took longer than {SECONDS:g} seconds; send its text, or a part of it."
        raise ValidationError(message) from None
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    if child.returncode:
        message = f"The {form} can't be read: it is damaged, locked by a password, or too complicated."
        raise ValidationError(message)
    return [Section(clean_text(text), heading and clean_text(heading)) for heading, text in loads(answer)]
