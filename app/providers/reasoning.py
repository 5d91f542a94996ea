"""Reasoning that is kept with an assistant message and goes back to the model that made it, and to no other.

It lies in the message's metadata under `reasoning`: a list of blocks `{"text", "signature"?, "after", "provider",
"model"}` in the model's order. `after` is how many characters of the message's text came before the block.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from app.domain.messages import Message
from app.domain.text import Growing, clean_text
from app.providers.base import ProviderEvent, ReasoningPiece, TextPiece

REASONING_KEY: Final = "reasoning"


class ReasoningKeeper:
    """Collects the reasoning of one answer: feed it every event, then put `blocks` into the message's metadata."""

    def __init__(self, provider: str, model: str) -> None:
        self._blocks: list[dict[str, Any]] = []
        self._newest = Growing()
        self._source = {"provider": provider, "model": model}
        self._text = 0
        self._open = False

    def push(self, event: ProviderEvent) -> None:
        """Take an event; a signature ends its block, and so does text."""
        if isinstance(event, TextPiece):
            self._text += len(event.text)
            self._open = False
        elif isinstance(event, ReasoningPiece):
            if not self._open:
                self.blocks.append({"text": "", "after": self._text, **self._source})
                self._newest = Growing()
            self._newest.add(clean_text(event.text))
            self._open = event.signature is None
            if event.signature is not None:
                self._blocks[-1]["signature"] = event.signature

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """The blocks so far."""
        if self._blocks:
            self._blocks[-1]["text"] = str(self._newest)
        return self._blocks

    def metadata(self) -> dict[str, Any] | None:
        """Give what to merge into a message's metadata; None when there was no reasoning."""
        return {REASONING_KEY: self.blocks} if self.blocks else None


def blocks_of(message: Message) -> list[Mapping[str, Any]]:
    """Give the blocks that are kept with a message."""
    kept = message.metadata.get(REASONING_KEY) if message.metadata else None
    return [block for block in kept if isinstance(block, Mapping)] if isinstance(kept, list) else []


def text_of_blocks(message: Message) -> str:
    """Give the text of all blocks."""
    return "".join(str(block.get("text") or "") for block in blocks_of(message))


def only_own(messages: tuple[Message, ...], provider: str, model: str) -> tuple[Message, ...]:
    """Take the reasoning of other models out of the messages: it is refused, or read as this model's own.

    Where there is no reasoning at all, the same tuple comes back.
    """
    if not any(REASONING_KEY in message.metadata for message in messages if message.metadata):
        return messages
    return tuple(_only_own(message, provider, model) for message in messages)


def _only_own(message: Message, provider: str, model: str) -> Message:
    blocks = blocks_of(message)
    if not blocks:
        return message
    own = [
        block for block in blocks if block.get("provider", provider) == provider and block.get("model", model) == model
    ]
    if len(own) == len(blocks):
        return message
    return replace(message, metadata={**(message.metadata or {}), REASONING_KEY: own})
