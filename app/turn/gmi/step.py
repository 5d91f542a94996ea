"""One model step: a request, its events as GMI chunks, and what came of it (R274 to R290)."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import field, replace

from app.conversation.tokens import TokenCounter, messages_tokens, tools_tokens
from app.domain.chunks import GmiChunk, StepFinished, TextDelta, ToolCallRequest, UsageUpdate
from app.domain.frozen import dataclass
from app.domain.generators import aclosing
from app.domain.ids import fresh_call_id
from app.domain.jsontext import dumps_text
from app.domain.messages import Message, ToolCall
from app.domain.text import Growing, clean, clean_text
from app.domain.usage import Hop, ModelCall, Usage
from app.observability.spans import spanned_in_pieces
from app.providers.attempts import AttemptFailed, AttemptRecord, GatewayEvent, Serving
from app.providers.base import (
    CallPiece,
    CallsReady,
    CallStarted,
    Finish,
    ModelRequest,
    ProviderEvent,
    ReasoningPiece,
    TextPiece,
    UsageReport,
)
from app.providers.billing import billed
from app.providers.gateway import Gateway, Route
from app.providers.reasoning import ReasoningKeeper
from app.turn.gmi.structured import Enforcement, Judged, StructuredReply


@dataclass(slots=True)
class Step:
    """A step while it runs, and what it was when it has ended.

    `lost` is the bill of attempts that failed. `hop` is the model that serves; until one does, nothing of it is known.
    """

    index: int
    gateway: Gateway
    route: Route
    request: ModelRequest
    used_ids: dict[str, None]
    waiting_tools: tuple[str, ...]
    on_call: Callable[[ModelCall], None]
    counter: TokenCounter
    written: Growing = field(default_factory=Growing)
    calls: list[ToolCall] = field(default_factory=list)
    usage: Usage | None = None
    lost: Usage = field(default_factory=Usage)
    finished: Finish | None = None
    hop: Hop = field(default_factory=lambda: Hop(0, "", ""))
    reasoning: ReasoningKeeper | None = None
    last: bool = False
    """Whether no round may follow: calls of a model that asks all the same are neither told nor run."""

    structured: StructuredReply | None = None
    """What the text must be. It is judged when it is whole, and held back until then unless the turn wants it told."""

    judged: Judged | None = None

    @property
    def text(self) -> str:
        """What the model has written so far."""
        return str(self.written)

    async def run(self) -> AsyncGenerator[GmiChunk, None]:
        """Yield the step's chunks, `StepFinished` last; a text without calls is judged where it must fit a schema.

        Raises ProviderError when no model could give the answer.
        """
        model = self.request.model
        asked: dict[str, str | int] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model,
            "fermata.step": self.index,
        }
        with spanned_in_pieces(f"chat {model}", asked) as tell:
            async with aclosing(self.gateway.stream(self.route, self.request, self._attempted)) as events:
                async for event in events:
                    for chunk in self._chunks(event):
                        yield chunk
            tell(self._served())
        if self.structured is not None and not self.calls:
            self.judged = self.structured.judge(self.text)
        yield self._end()

    @property
    def finish_reason(self) -> str | None:
        """Why the model stopped, once it has."""
        return self.finished.reason if self.finished is not None else None

    def _served(self) -> dict[str, str | int]:
        """Give what a span tells of the answer; nothing of it is what was said."""
        told, usage = self.finished or Finish("other"), self.usage or Usage()
        about: dict[str, str | int | None] = {
            "gen_ai.provider.name": self.hop.provider,
            "gen_ai.response.model": told.response_model or self.hop.model,
            "gen_ai.response.id": told.message_id,
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.output_tokens": usage.completion_tokens,
            "fermata.hop": self.hop.number,
            "fermata.finish_reason": self.finish_reason,
        }
        return {name: value for name, value in about.items() if value is not None}

    @property
    def enforcement(self) -> Enforcement:
        """How the model was held to the schema of its reply."""
        return (self.finished.form if self.finished is not None else None) or "provider_schema"

    def _end(self) -> StepFinished:
        hop, told, judged = self.hop, self.finished or Finish("other"), self.judged
        return StepFinished(
            self.index,
            self.text,
            self.finish_reason,
            hop.provider,
            hop.model,
            hop=hop.number,
            usage=self.usage,
            response_model=told.response_model,
            service_tier=told.service_tier,
            provider_message_id=told.message_id,
            cache_diagnostics=told.cache_diagnostics,
            structured_output=judged.value if judged is not None and not judged.issues else None,
            thinking_blocks=tuple(self.reasoning.blocks) if self.reasoning is not None else (),
        )

    def answer(self) -> Message:
        """Give the assistant message of this step, with the model's reasoning, which goes back to it."""
        metadata = self.reasoning.metadata() if self.reasoning is not None else None
        return Message("assistant", self.text or None, tool_calls=tuple(self.calls), metadata=metadata)

    def _chunks(self, event: GatewayEvent) -> list[GmiChunk]:
        match event:
            case TextPiece():
                return self._told(event)
            case Serving(number, provider, model):
                self.hop = Hop(number, provider, model)
                self.reasoning = ReasoningKeeper(provider, model)
                return []
            case AttemptFailed(usage, number, provider, model):
                self.lost += usage
                return [UsageUpdate(usage, attempt_failed=True, hop=number, provider=provider, model=model)]
            case _:
                return self._told(event)

    def _told(self, event: ProviderEvent) -> list[GmiChunk]:
        if self.reasoning is not None:
            self.reasoning.push(event)
        match event:
            case TextPiece(text):
                cleaned = clean_text(text)
                self.written.add(cleaned)
                held = self.structured is not None and not self.structured.stream_deltas
                return [] if held else [TextDelta(cleaned)]
            case CallsReady() if self.last:
                return []
            case CallsReady(calls):
                fresh_calls = [self._own(call) for call in calls]
                self.calls += fresh_calls
                internal = tuple(call for call in fresh_calls if call.name not in self.waiting_tools or call.invalid)
                return [ToolCallRequest(internal)] if internal else []
            case UsageReport(usage):
                self.usage = usage
                hop = self.hop
                return [UsageUpdate(usage, hop=hop.number, provider=hop.provider, model=hop.model)]
            case Finish():
                self.finished = event
            case ReasoningPiece() | CallStarted() | CallPiece():
                pass  # a call is told when it is whole
        return []

    def _attempted(self, record: AttemptRecord) -> None:
        self.on_call(
            billed(record, self.gateway.registry, purpose="turn", step=self.index, estimate=self._estimated_usage)
        )

    def _estimated_usage(self) -> Usage:
        """Count what was sent and what came back: the provider has told neither."""
        said = self.text + "".join(call.name + dumps_text(dict(call.arguments)) for call in self.calls)
        thought = "".join(block["text"] for block in self.reasoning.blocks) if self.reasoning is not None else ""
        reasoning = self.counter.text(thought)
        return Usage(
            prompt_tokens=messages_tokens(self.request.messages, self.counter)
            + tools_tokens(self.request.tools, self.counter),
            completion_tokens=self.counter.text(said) + reasoning,
            reasoning_tokens=reasoning,
        )

    def _own(self, call: ToolCall) -> ToolCall:
        """Give the call as it can be stored, under an id that no other call of the conversation has.

        The provider's own id is kept for it.
        """
        arguments, _ = clean(dict(call.arguments))
        extra, _ = clean(dict(call.extra or {}))
        call_id = clean_text(call.id)
        if not call_id or call_id in self.used_ids:
            extra["provider_id"] = call_id
            call_id = fresh_call_id()
        self.used_ids[call_id] = None
        invalid = None if call.invalid is None else clean_text(call.invalid)
        name = clean_text(call.name)
        return replace(call, id=call_id, name=name, arguments=arguments, invalid=invalid, extra=extra or None)
