"""The protocol between a GMI and a model, free of any vendor's words."""

import math
from collections.abc import AsyncGenerator, Mapping
from dataclasses import field
from typing import Any, Literal, Protocol

from app.domain.frozen import dataclass
from app.domain.messages import Message, ToolCall
from app.domain.tools import ToolSpec
from app.domain.turn import Effort
from app.domain.usage import Usage

ToolChoice = Literal["auto", "none", "required"]
FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "refusal", "other"]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to a model. `messages` begin with the system message, if there is one.

    None means: not sent, the provider's default holds. `tool_choice` is sent only with tools. Requests that begin alike
    share a `cache_key`, by which a provider finds what it has read already. `extra_body` and
    `extra_headers` go out as they are, beside what the request says itself. With `format_is_optional`, a server that
    does not know `response_format` is asked for a call with its schema instead, else without it. `api_key` replaces the
    configured key for this request and appears in no log, error or `repr`. `deadline` is the event loop's time by which
    the answer must be whole.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    response_format: Mapping[str, Any] | None = None
    format_is_optional: bool = False
    reasoning_effort: Effort | None = None
    user: str | None = None
    cache_key: str | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    extra_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_key: str | None = field(default=None, repr=False)
    deadline: float = math.inf


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of text; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPiece:
    """A piece of the model's reasoning, with a signature where the provider gives one."""

    text: str
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class CallStarted:
    """The model began to ask for a tool. `place` counts the answer's calls from 0; an id may come later, or never.

    What is begun may never be ready: only `CallsReady` says what to run.
    """

    place: int
    name: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A piece of a begun call's arguments, as text; never empty. The pieces together need not be JSON."""

    place: int
    text: str


@dataclass(frozen=True, slots=True)
class CallsReady:
    """Calls whose arguments are complete, in the order in which the model asked; each has an id and a name."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Running total of this request, given once for every provider chunk that carries usage (R280, R281)."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Finish:
    """The model is done. Calls present means `tool_calls`, whatever the provider says; `raw` is its own word.

    The rest is what the provider tells of its answer, where it does: the model that it names, the id under which it
    knows the answer, the tier that served it, and what it says of its prompt cache. `form` says how the model was held
    to the request's schema, where that was another way than the provider's own.
    """

    reason: FinishReason
    raw: str | None = None
    response_model: str | None = None
    message_id: str | None = None
    service_tier: str | None = None
    cache_diagnostics: Mapping[str, Any] | None = None
    form: Literal["forced_tool", "prompt_only"] | None = None


ProviderEvent = TextPiece | ReasoningPiece | CallStarted | CallPiece | CallsReady | UsageReport | Finish


class Provider(Protocol):
    """One provider of models. `name` is the part of a model id before the colon."""

    name: str

    def stream(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        """Stream one request's events, ending with exactly one `Finish`.

        Usage that belongs to a provider chunk comes after that chunk's other events; a call's `CallStarted` comes
        before its pieces, these before `CallsReady`, and that before `Finish`. Raises `ProviderError`, and nothing
        else, when the provider fails or refuses; its `usage` is what the failed request was billed. Closing the
        generator closes the socket, so read it inside `contextlib.aclosing`.
        """
        ...

    async def aclose(self) -> None:
        """Give back connections."""
        ...
