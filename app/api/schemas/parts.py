"""Typed parts of a message: text, an image by address or in the body, audio."""

import base64
import binascii
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from app.api.schemas.base import Input, NotBlank


def _is_base64(data: str) -> str:
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        message = "must be base64 without line breaks or a data: prefix"
        raise ValueError(message) from None
    return data


Base64 = Annotated[str, Field(min_length=1), AfterValidator(_is_base64)]


class TextPart(Input):
    """A piece of text."""

    type: Literal["text"]
    text: NotBlank = Field(description="The text.")


class ImageUrlPart(Input):
    """An image that the model's provider fetches itself."""

    type: Literal["image_url"]
    url: str = Field(pattern="^(https?://|data:image/)", max_length=8_000_000, description="Where the image is.")
    detail: Literal["auto", "low", "high"] | None = Field(default=None, description="How closely to look at it.")


class ImagePart(Input):
    """An image in the body."""

    type: Literal["image"]
    data: Base64 = Field(description="The image, base64.")
    mime_type: str = Field(default="image/png", pattern="^image/[a-z0-9.+-]+$", description="Its media type.")


class AudioPart(Input):
    """Sound in the body."""

    type: Literal["audio"]
    data: Base64 = Field(description="The sound, base64.")
    mime_type: str = Field(default="audio/wav", pattern="^audio/[a-z0-9.+-]+$", description="Its media type.")


Part = Annotated[TextPart | ImageUrlPart | ImagePart | AudioPart, Field(discriminator="type")]
PartList = Annotated[list[Part], Field(min_length=1, max_length=64)]


def _form_of(given: Any) -> str:
    return PARTS_TAG if isinstance(given, list) else TEXT_TAG


PARTS_TAG: Final = "~parts"
TEXT_TAG: Final = "~text"
TextOrParts = Annotated[
    Annotated[NotBlank, Tag(TEXT_TAG)] | Annotated[PartList, Tag(PARTS_TAG)], Discriminator(_form_of)
]
"""Text, or a list of typed parts. The tags appear in a fault's place, and are taken out before anybody reads it."""


def as_content(given: str | list[Part]) -> str | list[dict[str, Any]]:
    """Give the domain's form: the text, or the parts without what was not set."""
    if isinstance(given, str):
        return given
    return [part.model_dump(exclude_none=True) for part in given]
