"""A stream's state, and the pause it may hold."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from app.api.schemas.base import Output, OwnedInput
from app.domain.turn import StreamStatus


class CallOut(Output):
    """A call that the host is to run."""

    id: str
    name: str
    arguments: Mapping[str, Any]


class AskedCallOut(CallOut):
    """A call of a pause. `tool`: the host runs it. `approval`: the service runs it once a person has agreed."""

    kind: Literal["tool", "approval"]


class PauseOut(Output):
    """A turn that waits for its host. Post a result for each of `missing`."""

    pause_id: str
    stream_id: str
    conversation_id: str
    session_id: str
    user_id: str
    persona_id: str
    turn_id: str
    tool_calls: tuple[AskedCallOut, ...]
    rationale: str | None
    requested_at: str
    expires_at: str | None
    received: tuple[str, ...]
    missing: tuple[str, ...]


class UsageOut(Output):
    """Tokens that were billed."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int
    reasoning_tokens: int


class CancelBody(OwnedInput):
    """For whom a stream is cancelled."""


class CancelOut(Output):
    """What became of a cancel: it was asked of what runs, it has ended the pause, or there was nothing to end."""

    status: Literal["cancelling", "cancelled", "already_ended"]


class StreamOut(Output):
    """What a stream does or how it ended: the answer of a turn that is not streamed, too."""

    stream_id: str
    conversation_id: str
    turn_id: str
    status: StreamStatus
    final_response: Mapping[str, Any] | None
    pending_request: PauseOut | None
    error: Mapping[str, Any] | None = Field(description="`code` and `message`, when the stream failed.")
    usage: Mapping[str, Any] | None
    last_event_id: str | None
