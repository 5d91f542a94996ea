"""One model step: a request, its events as GMI chunks, and what came of it (R274 to R282)."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from app.domain.chunks import GmiChunk, StepFinished, TextDelta, ToolCallRequest, UsageUpdate
from app.domain.errors import ProviderError
from app.domain.ids import fresh
from app.domain.messages import Message, ToolCall
from app.domain.text import clean, clean_text
from app.domain.usage import Usage
from app.providers.base import (
    CallsReady,
    Finish,
    ModelRequest,
    Provider,
    ProviderEvent,
    ReasoningPiece,
    TextPiece,
    UsageReport,
)


@dataclass(slots=True)
class Step:
    """A step while it runs, and what it was when it has ended."""

    index: int
    provider: Provider
    request: ModelRequest
    used_ids: set[str]
    own_tools: frozenset[str]
    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    usage: Usage | None = None
    finish_reason: str | None = None

    async def run(self) -> AsyncIterator[GmiChunk]:
        """Yield the step's chunks, `StepFinished` last. Raises ProviderError; what was billed stays in `usage`."""
        try:
            async with aclosing(self.provider.stream(self.request)) as events:
                async for event in events:
                    for chunk in self._chunks(event):
                        yield chunk
        except ProviderError as error:
            self.usage = error.usage or self.usage
            raise
        yield StepFinished(
            self.index, self.text, self.finish_reason, self.provider.name, self.request.model, usage=self.usage
        )

    def answer(self) -> Message:
        """Give the assistant message of this step."""
        return Message("assistant", self.text or None, tool_calls=tuple(self.calls))

    def _chunks(self, event: ProviderEvent) -> list[GmiChunk]:
        match event:
            case TextPiece(text):
                cleaned = clean_text(text)
                self.text += cleaned
                return [TextDelta(cleaned)]
            case CallsReady(calls):
                fresh_calls = [self._own(call) for call in calls]
                self.calls += fresh_calls
                internal = tuple(call for call in fresh_calls if call.name in self.own_tools)
                return [ToolCallRequest(internal)] if internal else []
            case UsageReport(usage):
                self.usage = usage
                return [UsageUpdate(usage, provider=self.provider.name, model=self.request.model)]
            case Finish(reason):
                self.finish_reason = reason
            case ReasoningPiece():
                pass
        return []

    def _own(self, call: ToolCall) -> ToolCall:
        """Give the call an id that no other call of the conversation has; the provider's own is kept for it."""
        arguments, _ = clean(dict(call.arguments))
        extra = dict(call.extra or {})
        call_id = call.id
        if not call_id or call_id in self.used_ids:
            extra["provider_id"] = call.id
            call_id = fresh("call")
        self.used_ids.add(call_id)
        return replace(call, id=call_id, arguments=arguments, extra=extra or None)
