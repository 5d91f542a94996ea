"""Messages of a conversation, in a form that belongs to no provider.

The same values are stored in `messages`, kept in a pause's snapshot and handed to a provider's dialect, so their JSON
form (`to_json`, `from_json`) is part of what a release must be able to read for ever.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, NamedTuple

from app.domain.frozen import dataclass

Role = Literal["system", "user", "assistant", "tool", "summary", "error", "thought"]
Content = str | list[dict[str, Any]] | None

NEVER_SENT: Final[frozenset[Role]] = frozenset({"error", "thought"})
"""Roles that stay in the conversation and are never told to a model (R334, R335)."""

CONTEXT_CHARACTERS: Final = "context_characters"
"""Key of a user message's metadata: how many characters at its beginning the user has not said."""

STABLE_CHARACTERS: Final = "stable_characters"
"""Key of a system message's metadata: how many characters at its beginning are the same in other turns."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that a model asked for.

    `arguments` is the parsed object. When the model's text was not a JSON object, `arguments` is empty and `invalid`
    holds the text: such a call is answered with an error and never run. `extra` is opaque provider data (thought
    signatures, the provider's own id) that goes back to the same provider unchanged. `needs_approval` tells that the
    runtime runs the call itself once a person has agreed to it.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    invalid: str | None = None
    extra: Mapping[str, Any] | None = None
    needs_approval: bool = False

    def to_json(self) -> dict[str, Any]:
        """Give the stored form; `from_json` reads it back."""
        stored: dict[str, Any] = {"id": self.id, "name": self.name, "arguments": dict(self.arguments)}
        if self.invalid is not None:
            stored["invalid"] = self.invalid
        if self.extra:
            stored["extra"] = dict(self.extra)
        if self.needs_approval:
            stored["needs_approval"] = True
        return stored

    def asked(self) -> dict[str, Any]:
        """Give the form in which a host is asked: `kind` says whether to run the call or to agree to it."""
        return {**self.public(), "kind": "approval" if self.needs_approval else "tool"}

    def public(self) -> dict[str, Any]:
        """Give the form that a host reads: id, name and arguments."""
        return {"id": self.id, "name": self.name, "arguments": dict(self.arguments)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "ToolCall":
        """Read the stored form."""
        return cls(
            id=stored["id"],
            name=stored["name"],
            arguments=stored.get("arguments") or {},
            invalid=stored.get("invalid"),
            extra=stored.get("extra"),
            needs_approval=bool(stored.get("needs_approval")),
        )


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `content` is text, a list of typed parts, or nothing (an assistant that only called tools)."""

    role: Role
    content: Content = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    is_error: bool = False
    metadata: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Give the stored form; keys that say nothing are left out."""
        stored: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            stored["tool_calls"] = [call.to_json() for call in self.tool_calls]
        if self.tool_call_id is not None:
            stored["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            stored["name"] = self.name
        if self.is_error:
            stored["is_error"] = True
        if self.metadata:
            stored["metadata"] = dict(self.metadata)
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Message":
        """Read the stored form."""
        return cls(
            role=stored["role"],
            content=stored.get("content"),
            tool_calls=tuple(ToolCall.from_json(call) for call in stored.get("tool_calls") or ()),
            tool_call_id=stored.get("tool_call_id"),
            name=stored.get("name"),
            is_error=bool(stored.get("is_error")),
            metadata=stored.get("metadata"),
        )


class Entry(NamedTuple):
    """A message and its position in the conversation."""

    position: int
    message: Message


_PARTS: Final[Mapping[str, tuple[frozenset[str], frozenset[str], str]]] = {
    "text": (frozenset({"text"}), frozenset(), ""),
    "image_url": (frozenset({"url"}), frozenset({"detail"}), ""),
    "image": (frozenset({"data"}), frozenset({"mime_type"}), "image/"),
    "audio": (frozenset({"data"}), frozenset({"mime_type"}), "audio/"),
    "file": (frozenset({"data", "mime_type"}), frozenset({"name"}), ""),
}
"""By type: the fields that a part has, those that it may have, and what its media type begins with."""

_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_ADDRESS: Final = re.compile(r"https?://|data:image/")


def is_parts(value: Any) -> bool:
    """Tell whether a value is a list of typed parts: every entry is one, with its own fields and no others."""
    return isinstance(value, list) and bool(value) and all(map(_is_part, value))


def _is_part(value: Any) -> bool:
    if not isinstance(value, dict) or not all(isinstance(entry, str) for entry in value.values()):
        return False
    needed, allowed, media = _PARTS.get(value.get("type", ""), (None, None, ""))
    given = frozenset(value) - {"type"}
    if needed is None or allowed is None or not needed <= given <= needed | allowed:
        return False
    if "url" in value and not _ADDRESS.match(value["url"]):
        return False
    if not value.get("mime_type", media).startswith(media):
        return False
    data = value.get("data")
    return data is None or (len(data) % 4 == 0 and _BASE64.fullmatch(data) is not None)


def text_of(content: Content) -> str:
    """Give the text of a content: the string itself, or its text parts joined by line ends."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content if part.get("type") == "text")


def dump(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Give the stored form of a message list."""
    return [message.to_json() for message in messages]


def load(stored: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Read the stored form of a message list."""
    return tuple(Message.from_json(entry) for entry in stored)
