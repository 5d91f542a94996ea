"""What was used: by model, and request by request."""

from typing import Literal

from pydantic import Field

from app.api.schemas.base import Output


class ModelUsageOut(Output):
    """What the requests to one model took."""

    model: str = Field(description="`provider:model`.")
    requests: int
    failed_requests: int
    estimated_requests: int = Field(description="Requests whose provider told no usage: the sums hold an estimate.")
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = Field(description="The part of `prompt_tokens` that came from the provider's cache.")
    reasoning_tokens: int = Field(description="The part of `completion_tokens` that the model thought with.")
    cost_usd: float | None = Field(description="US dollars; null where no price of the model is set.")


class RequestOut(Output):
    """One attempt at a model request."""

    turn_id: str
    purpose: Literal["turn", "summary", "judge", "embedding", "metaprompt"]
    step: int = Field(description="Which model step of the operation it was for, from 0.")
    hop: int = Field(description="0 for the model that was asked for, else the number of the fallback.")
    attempt: int
    model: str
    outcome: Literal["delivered", "failed", "abandoned"]
    reason: str | None
    status: int | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    estimated: bool
    cost_usd: float | None
    first_output_seconds: float | None
    seconds: float
    created_at: str


class ConversationUsageOut(Output):
    """What a conversation has used so far."""

    conversation_id: str
    models: tuple[ModelUsageOut, ...]
    cost_usd: float | None = Field(description="US dollars; null unless a price of each model is set.")


class StreamUsageOut(ConversationUsageOut):
    """What a stream has used so far; an operation that runs is in it when it has ended."""

    stream_id: str
    requests: tuple[RequestOut, ...]
