"""The typed parts of a message's content, read once for all dialects."""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.domain.frozen import dataclass

_TEXTS: Final = frozenset({"application/json", "application/xml", "application/yaml", "application/x-ndjson"})
_DATA_URL: Final = re.compile(r"data:([\w.+/-]*)(?:;[\w=.-]+)*;base64,")


@dataclass(frozen=True, slots=True)
class TextPart:
    """`{"type": "text", "text": …}`."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """`{"type": "image_url", "url": …, "detail"?: …}` or `{"type": "image", "data": base64, "mime_type": …}`."""

    url: str | None = None
    data: str | None = None
    mime_type: str = "image/png"
    detail: str | None = None

    def as_url(self) -> str:
        """Give an address; data becomes a `data:` address."""
        return self.url if self.url is not None else f"data:{self.mime_type};base64,{self.data or ''}"

    def inline(self) -> tuple[str, str] | None:
        """Give MIME type and base64 data; None when it is only an address. A `data:` address is data."""
        if self.data is not None:
            return self.mime_type, self.data
        found = _DATA_URL.match(self.url or "")
        return (found.group(1) or self.mime_type, self.url[found.end() :]) if found and self.url else None


@dataclass(frozen=True, slots=True)
class AudioPart:
    """`{"type": "audio", "data": base64, "mime_type": …}`."""

    data: str
    mime_type: str = "audio/wav"

    @property
    def format(self) -> str:
        """The short name of the format, such as `wav` or `mp3`."""
        short = self.mime_type.partition("/")[2].removeprefix("x-")
        return {"mpeg": "mp3", "wave": "wav"}.get(short, short)


@dataclass(frozen=True, slots=True)
class FilePart:
    """`{"type": "file", "data": base64, "mime_type": …, "name"?: …}`."""

    data: str
    mime_type: str = "application/octet-stream"
    name: str | None = None

    @property
    def is_pdf(self) -> bool:
        """Whether it is the one kind of document that providers read themselves."""
        return self.mime_type == "application/pdf"

    def as_url(self) -> str:
        """Give a `data:` address."""
        return f"data:{self.mime_type};base64,{self.data}"

    def text(self) -> str | None:
        """Give the content of a file of text, under its name; None for any other file."""
        if not (self.mime_type.startswith("text/") or self.mime_type in _TEXTS):
            return None
        try:
            content = base64.b64decode(self.data, validate=True).decode()
        except ValueError:
            return None
        return f"{self.name}:\n{content}" if self.name else content


Part = TextPart | ImagePart | AudioPart | FilePart

_NOUNS: Final[dict[type[Part], str]] = {
    TextPart: "a text",
    ImagePart: "an image",
    AudioPart: "a sound",
    FilePart: "a file",
}


def not_shown(part: Part) -> str:
    """Say that a part can't be sent: the model is to know that there was one."""
    what = _NOUNS[type(part)]
    if isinstance(part, FilePart):
        what = f"{what} {part.name or ''}".rstrip() + f" ({part.mime_type})"
    return f"[Here was {what} that can't be shown to this model.]"


def read_parts(content: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    """Read a list of parts; a part of an unknown type is left out."""
    for part in content:
        kind = part.get("type")
        if kind == "text":
            yield TextPart(str(part.get("text") or ""))
        elif kind == "image_url":
            yield _linked_image(part)
        elif kind == "image":
            yield ImagePart(data=str(part.get("data") or ""), mime_type=str(part.get("mime_type") or "image/png"))
        elif kind == "audio":
            yield AudioPart(str(part.get("data") or ""), str(part.get("mime_type") or "audio/wav"))
        elif kind == "file":
            mime_type = str(part.get("mime_type") or "application/octet-stream")
            yield FilePart(str(part.get("data") or ""), mime_type, part.get("name"))


def _linked_image(part: Mapping[str, Any]) -> ImagePart:
    nested = part.get("image_url")
    source: Mapping[str, Any] = nested if isinstance(nested, Mapping) else part
    url = nested if isinstance(nested, str) else source.get("url")
    detail = source.get("detail")
    return ImagePart(url=str(url or ""), detail=None if detail is None else str(detail))
