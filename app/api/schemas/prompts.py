"""Prompts as operators read them."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from app.api.schemas.base import Output


class CutOut(Output):
    """What was left out of a section for want of room."""

    tokens: int
    entries: int = Field(description="How many whole entries of it.")


class PromptOut(Output):
    """What an operation's model was told first."""

    turn_id: str
    operation: Literal["turn", "continuation", "resume"]
    persona_id: str
    model: str
    messages: tuple[Mapping[str, Any], ...] = Field(
        description="In order, the system's first. Secrets are masked; images, sounds and files are left out."
    )
    tools: tuple[str, ...]
    sections: Mapping[str, int] = Field(description="Tokens of each section; none for what goes on after a pause.")
    cut: Mapping[str, CutOut]
    tokens: Mapping[str, Any] = Field(description="The model's window, and what takes it up.")
    at: str


class StreamPromptsOut(Output):
    """The prompts of a stream's operations, the oldest first."""

    stream_id: str
    conversation_id: str
    prompts: tuple[PromptOut, ...]
