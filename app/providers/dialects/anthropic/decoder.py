"""Reads the events of one Anthropic Messages response, by their `type`: some proxies leave the event's name out."""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final

from app.domain.frozen import dataclass
from app.domain.ids import fresh
from app.domain.messages import ToolCall
from app.domain.text import Growing
from app.domain.usage import Usage
from app.providers.base import (
    CallPiece,
    CallsReady,
    CallStarted,
    Finish,
    FinishReason,
    ProviderEvent,
    ReasoningPiece,
    TextPiece,
    UsageReport,
)
from app.providers.dialects.anthropic.body import REDACTED
from app.providers.documents import document_of
from app.providers.errors import failure
from app.providers.wire import TextJoiner, count, dumps_text, join_surrogates, parse_arguments, part

_REASONS: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_COUNTS: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


@dataclass(slots=True)
class _Call:
    place: int
    id: str
    name: str
    given: Mapping[str, Any]
    arguments: Growing = field(default_factory=Growing)
    ended: bool = False


def _fresh_call_id() -> str:
    return fresh("toolu")


class AnthropicDecoder:
    """See `app.providers.dialect.Decoder`. The answer is whole with a stop reason or with `message_stop`."""

    def __init__(
        self, provider: str, secrets: tuple[str, ...] = (), new_id: Callable[[], str] = _fresh_call_id
    ) -> None:
        self.finished = False
        self.done = False
        self.usage: Usage | None = None
        self._provider = provider
        self._secrets = secrets
        self._new_id = new_id
        self._counts: dict[str, int] = {}
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}
        self._taken = False
        self._text = TextJoiner()
        self._reasoning = TextJoiner()
        self._output = False
        self._raw: str | None = None
        self._model: str | None = None
        self._id: str | None = None
        self._tier: str | None = None
        self._diagnostics: Mapping[str, Any] | None = None
        self._handlers: dict[str, Callable[[Mapping[str, Any], list[ProviderEvent]], None]] = {
            "message_start": self._message_start,
            "content_block_start": self._block_start,
            "content_block_delta": self._block_delta,
            "content_block_stop": self._block_stop,
            "message_delta": self._message_delta,
            "message_stop": self._message_stop,
        }

    def feed(self, event: str, data: bytes) -> list[ProviderEvent]:
        """See `Decoder.feed`."""
        events: list[ProviderEvent] = []
        if self.done or data.strip() == b"[DONE]":
            return events
        document = document_of(self._provider, event, data, self._secrets, ours=self._is_known)
        if self._is_known(document):
            self._handlers[str(document["type"])](document, events)
        return events

    def _is_known(self, document: Mapping[str, Any]) -> bool:
        return str(document.get("type")) in self._handlers

    def end(self) -> list[ProviderEvent]:
        """See `Decoder.end`."""
        if not self.finished:
            raise failure("truncated", self._provider, f"The answer of {self._provider} broke off before its end.")
        events: list[ProviderEvent] = []
        self._flush(events)
        self._give_calls(events)
        if self._calls:
            reason: FinishReason = "tool_calls"
        elif self._raw is None:
            reason = "stop" if self._output else "other"
        else:
            reason = _REASONS.get(self._raw, "other")
        events.append(Finish(reason, self._raw, self._model, self._id, self._tier, self._diagnostics))
        return events

    def _message_start(self, document: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        message = part(document, "message")
        if model := message.get("model"):
            self._model = str(model)
        self._id = str(message.get("id") or "") or None
        self._diagnostics = part(message, "diagnostics") or None
        self._count(message, events)

    def _block_start(self, document: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        block = part(document, "content_block")
        match block.get("type"):
            case "text":
                self._say(block.get("text"), events)
            case "thinking":
                self._think(block.get("thinking"), events)
            case "redacted_thinking":
                events.append(ReasoningPiece("", REDACTED + str(block.get("data") or "")))
            case "tool_use":
                self._begin(document.get("index"), block, events)
            case _:
                pass  # blocks of the provider's own tools are no one else's business

    def _block_delta(self, document: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        delta = part(document, "delta")
        match delta.get("type"):
            case "text_delta":
                self._say(delta.get("text"), events)
            case "thinking_delta":
                self._think(delta.get("thinking"), events)
            case "signature_delta":
                events.append(ReasoningPiece(self._reasoning.flush(), str(delta.get("signature") or "")))
            case "input_json_delta":
                self._go_on(document.get("index"), str(delta.get("partial_json") or ""), events)
            case _:
                pass  # citations and what may come yet

    def _begin(self, index: Any, block: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        """Begin a call. Where servers give several the same index, what comes next under it is the newest one's."""
        given = part(block, "input")
        call = _Call(len(self._calls), str(block.get("id") or ""), join_surrogates(str(block.get("name") or "")), given)
        self._calls.append(call)
        if isinstance(index, int):
            self._at[index] = call
        events.append(CallStarted(call.place, call.name, call.id or None))
        if given:
            events.append(CallPiece(call.place, dumps_text(dict(given))))

    def _go_on(self, index: Any, text: str, events: list[ProviderEvent]) -> None:
        call = self._call_at(index)
        if call is not None and text:
            call.arguments.add(text)
            events.append(CallPiece(call.place, join_surrogates(text)))

    def _block_stop(self, document: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        del events
        if (call := self._call_at(document.get("index"))) is not None:
            call.ended = True

    def _message_delta(self, document: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        if raw := part(document, "delta").get("stop_reason"):
            self._raw = str(raw)
            self.finished = True
            self._flush(events)
            self._give_calls(events)
        self._count(document, events)

    def _message_stop(self, document: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        del document, events
        self.finished = self.done = True

    def _call_at(self, index: Any) -> _Call | None:
        if isinstance(index, int):
            return self._at.get(index)
        return self._calls[-1] if index is None and self._calls else None

    def _count(self, holder: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        """Merge counts field by field: they only grow, and the later ones may leave the input out."""
        told = part(holder, "usage")
        if not told:
            return
        if tier := told.get("service_tier"):
            self._tier = str(tier)
        for name in _COUNTS:
            self._counts[name] = max(self._counts.get(name, 0), count(told.get(name)))
        plain, written, read, output = (self._counts[name] for name in _COUNTS)
        self.usage = Usage(plain + written + read, output, read)
        events.append(UsageReport(self.usage))

    def _say(self, text: Any, events: list[ProviderEvent]) -> None:
        if isinstance(text, str) and text and (ready := self._text.push(text)):
            self._output = True
            events.append(TextPiece(ready))

    def _think(self, text: Any, events: list[ProviderEvent]) -> None:
        if isinstance(text, str) and text and (ready := self._reasoning.push(text)):
            events.append(ReasoningPiece(ready))

    def _flush(self, events: list[ProviderEvent]) -> None:
        if left := self._text.flush():
            events.append(TextPiece(left))

    def _give_calls(self, events: list[ProviderEvent]) -> None:
        if self._taken or not self._calls:
            return
        self._taken = True
        used: set[str] = set()
        events.append(CallsReady(tuple(self._call(call, used) for call in self._calls)))

    def _call(self, call: _Call, used: set[str]) -> ToolCall:
        call_id = call.id if call.id and call.id not in used else self._new_id()
        used.add(call_id)
        text = str(call.arguments)
        cut = not call.ended and _REASONS.get(self._raw or "") == "length"
        given = None if cut and not call.given else dict(call.given)
        arguments = parse_arguments(text) if text.strip() else given
        return ToolCall(call_id, call.name, arguments or {}, invalid=text if arguments is None else None)
