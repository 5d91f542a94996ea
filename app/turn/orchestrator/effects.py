"""What a chunk of state carries: the writes that must be in one transaction with it, before any reader sees it."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from app.domain.chunks import StreamChunk
from app.domain.frozen import dataclass
from app.domain.messages import ToolCall
from app.domain.turn import StreamStatus
from app.domain.usage import Usage
from app.store.messages import NewMessage
from app.turn.pauses.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class NewPause:
    """A pause to hold."""

    pause_id: str
    calls: tuple[ToolCall, ...]
    rationale: str | None
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an operation ends: the chunks that say so, and their effects. The `end` frame is added when it is written.

    `text` is what the GMI wrote: the reply, or the text before a request. With `redact`, the pieces of text that the
    operation has sent already are taken out of the log.
    """

    status: StreamStatus
    chunks: tuple[StreamChunk, ...]
    usage: Usage = field(default_factory=Usage)
    messages: tuple[NewMessage, ...] = ()
    pause: NewPause | None = None
    final_response: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    close_reason: str | None = None
    text: str | None = None
    redact: bool = False
