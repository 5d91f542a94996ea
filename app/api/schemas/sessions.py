"""What sessions keep, as operators read it."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from app.api.schemas.base import Output
from app.domain.session import TraceType


class TraceEntryOut(Output):
    """An entry of a session's reasoning trace."""

    position: int = Field(description="Its place; a gap is where a conversation was erased.")
    at: str
    type: TraceType
    message: str
    related_id: str | None = Field(description="What it is about: a tool call or a pause.")
    details: Mapping[str, Any]
    conversation_id: str
    stream_id: str
    turn_id: str
    persona_id: str
