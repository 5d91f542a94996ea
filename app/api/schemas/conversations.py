"""Conversations and their messages."""

from collections.abc import Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, Field, model_validator

from app.api.schemas.base import ConversationId, Input, JsonObject, Name, Output, OwnedInput
from app.api.schemas.parts import TextOrParts, as_content
from app.domain.messages import Message, ToolCall

T = TypeVar("T")
Title = Annotated[str, Field(max_length=512)]


class CallInput(Input):
    """A call that an assistant's message made."""

    id: Name = Field(description="Its id; a tool message answers it by `tool_call_id`.")
    name: str = Field(pattern="^[A-Za-z0-9_-]{1,64}$", description="The tool.")
    arguments: JsonObject = Field(default_factory=dict, description="Its arguments.")


class MessageInput(Input):
    """One message of a conversation that began elsewhere."""

    role: Literal["system", "user", "assistant", "tool"] = Field(description="Who speaks.")
    content: TextOrParts | None = Field(default=None, description="Text or typed parts.")
    tool_calls: list[CallInput] = Field(default_factory=list, max_length=128, description="Calls of an assistant.")
    tool_call_id: Name | None = Field(default=None, description="The call that a tool message answers.")
    name: Name | None = Field(default=None, description="Name of the user, or of the tool.")
    is_error: bool = Field(default=False, description="Whether a tool message tells of a failure.")

    @model_validator(mode="after")
    def _fits_its_role(self) -> "MessageInput":
        if self.tool_calls and self.role != "assistant":
            message = "only an assistant's message has tool_calls"
            raise ValueError(message)
        if (self.role == "tool") != (self.tool_call_id is not None):
            message = "a tool's message names its call in tool_call_id, and no other message does"
            raise ValueError(message)
        if self.content is None and not self.tool_calls:
            message = "content is missing"
            raise ValueError(message)
        return self

    def to_domain(self) -> Message:
        """Give the domain's value."""
        return Message(
            role=self.role,
            content=None if self.content is None else as_content(self.content),
            tool_calls=tuple(ToolCall(call.id, call.name, call.arguments) for call in self.tool_calls),
            tool_call_id=self.tool_call_id,
            name=self.name,
            is_error=self.is_error,
        )


def _rounds_are_whole(messages: list[MessageInput]) -> list[MessageInput]:
    """Every call is answered right after its message, and nothing is answered that was not asked."""
    waiting: list[str] = []
    for index, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                text = (
                    f"message {index} answers a call that the message before it did not make: {message.tool_call_id!r}"
                )
                raise ValueError(text)
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            text = f"message {index} comes before the answer to the call {waiting[0]!r}"
            raise ValueError(text)
        waiting = [call.id for call in message.tool_calls]
        if len(set(waiting)) < len(waiting):
            text = f"message {index} makes two calls with one id"
            raise ValueError(text)
    if waiting:
        text = f"the call {waiting[0]!r} has no answer; add its tool message"
        raise ValueError(text)
    return messages


class ConversationBody(OwnedInput):
    """A conversation to make."""

    conversation_id: ConversationId | None = Field(default=None, description="Its id; made up when left out.")
    session_id: Name | None = Field(default=None, description="Its session; its own id when left out.")
    persona_id: Name | None = Field(default=None, description="Who answers in it.")
    title: Title | None = Field(default=None, description="What people call it.")
    metadata: JsonObject = Field(default_factory=dict, description="Anything a host wants to keep with it.")
    messages: Annotated[list[MessageInput], AfterValidator(_rounds_are_whole)] = Field(
        default_factory=list, max_length=10_000, description="What was said before; calls must have their answers."
    )


class ConversationChange(OwnedInput):
    """What to change; what is left out stays."""

    title: Title | None = Field(default=None, description="The new title.")
    metadata: JsonObject | None = Field(default=None, description="The new metadata, in place of the old.")

    @model_validator(mode="after")
    def _changes_something(self) -> "ConversationChange":
        if self.title is None and self.metadata is None:
            message = "there is nothing to change: send title or metadata"
            raise ValueError(message)
        return self


class ConversationOut(Output):
    """A conversation without its messages."""

    conversation_id: str
    user_id: str
    session_id: str
    persona_id: str | None
    title: str | None
    metadata: Mapping[str, Any]
    created_at: str
    updated_at: str
    message_count: int
    active_stream_id: str | None = Field(description="The stream whose operation runs now; null when none runs.")
    pending_pause_id: str | None = Field(description="The pause that waits for its host; null when there is none.")


class MessageOut(Output):
    """A stored message. `position` is its place in the conversation."""

    position: int
    message_id: str
    turn_id: str | None
    role: str
    content: Any
    tool_calls: tuple[Mapping[str, Any], ...]
    tool_call_id: str | None
    name: str | None
    is_error: bool
    metadata: Mapping[str, Any]
    created_at: str


class PageOut(Output, Generic[T]):
    """One page; send `next_cursor` as `cursor` for the next one, until it is null."""

    items: tuple[T, ...]
    next_cursor: str | None
