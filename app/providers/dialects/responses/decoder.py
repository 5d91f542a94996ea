"""Reads the events of one OpenAI Responses response."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from app.domain.frozen import dataclass
from app.domain.ids import fresh_call_id
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
from app.providers.dialects.responses.body import ITEM
from app.providers.documents import document_of
from app.providers.errors import failure, in_band
from app.providers.wire import TextJoiner, count, dumps_text, join_surrogates, parse_arguments, part

_INCOMPLETE: Final[dict[str, FinishReason]] = {"max_output_tokens": "length", "content_filter": "content_filter"}


@dataclass(slots=True)
class _Call:
    place: int
    id: str = ""
    name: str = ""
    arguments: Growing = field(default_factory=Growing)
    ended: bool = False
    begun: bool = False

    def told(self, piece: str) -> Iterator[CallStarted | CallPiece]:
        """Give the events of a piece; until the call has a name, its pieces wait."""
        if not self.name:
            return
        if not self.begun:
            self.begun = True
            yield CallStarted(self.place, self.name, self.id or None)
            piece = str(self.arguments)
        if piece:
            yield CallPiece(self.place, join_surrogates(piece))


def _id_of(item: Mapping[str, Any]) -> str:
    return str(item.get("call_id") or item.get("id") or "")


class ResponsesDecoder:
    """See `app.providers.dialect.Decoder`. The answer is whole with `response.completed` or `response.incomplete`."""

    def __init__(self, provider: str, secrets: tuple[str, ...] = (), new_id: Callable[[], str] = fresh_call_id) -> None:
        self.finished = False
        self.done = False
        self.usage: Usage | None = None
        self._provider = provider
        self._secrets = secrets
        self._new_id = new_id
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}
        self._text = TextJoiner()
        self._reasoning = TextJoiner()
        self._told: set[int] = set()
        self._refused = False
        self._reason: FinishReason = "stop"
        self._raw: str | None = None
        self._model: str | None = None
        self._id: str | None = None
        self._tier: str | None = None
        self._handlers: dict[str, Callable[[Mapping[str, Any], list[ProviderEvent]], None]] = {
            "response.output_text.delta": self._text_delta,
            "response.refusal.delta": self._refusal_delta,
            "response.reasoning_summary_text.delta": self._reasoning_delta,
            "response.reasoning_text.delta": self._reasoning_delta,
            "response.reasoning_summary_part.added": self._summary_part,
            "response.function_call_arguments.delta": self._arguments_delta,
            "response.output_item.added": self._item_added,
            "response.output_item.done": self._item_done,
            "response.completed": self._completed,
            "response.incomplete": self._completed,
            "response.failed": self._failed,
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
        reason: FinishReason = "tool_calls" if self._calls else "refusal" if self._refused else self._reason
        return [Finish(reason, self._raw, self._model, self._id, self._tier)]

    def _text_delta(self, document: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        self._told.add(count(document.get("output_index")))
        self._say(document.get("delta"), events)

    def _refusal_delta(self, document: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        self._refused = True
        self._text_delta(document, events)

    def _reasoning_delta(self, document: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        text = document.get("delta")
        if isinstance(text, str) and text and (ready := self._reasoning.push(text)):
            events.append(ReasoningPiece(ready))

    def _summary_part(self, document: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        if count(document.get("summary_index")):
            events.append(ReasoningPiece("\n\n"))

    def _arguments_delta(self, document: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        call = self._call_at(count(document.get("output_index")))
        piece = str(document.get("delta") or "")
        call.arguments.add(piece)
        events += call.told(piece)

    def _item_added(self, document: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        item = part(document, "item")
        if item.get("type") == "function_call":
            place, call_id = count(document.get("output_index")), _id_of(item)
            here = self._at.get(place)
            # Some servers give every item the same place, so another id begins another call.
            call = self._begin(place) if here is not None and here.id != call_id else self._call_at(place)
            call.id = call_id
            call.name = join_surrogates(str(item.get("name") or ""))
            events += call.told("")

    def _call_at(self, index: int) -> _Call:
        return self._at.get(index) or self._begin(index)

    def _begin(self, index: int) -> _Call:
        call = self._at[index] = _Call(len(self._calls))
        self._calls.append(call)
        return call

    def _call_of(self, place: int, item: Mapping[str, Any]) -> _Call:
        """Find the call that a whole item is: the one at its place, or one of its id where places are mixed up."""
        here, call_id = self._call_at(place), _id_of(item)
        if here.id in {"", call_id} and not here.ended:
            return here
        named = next((call for call in self._calls if call.id == call_id and not call.ended), None)
        return named or (self._begin(place) if here.ended else here)

    def _item_done(self, document: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        self._item(count(document.get("output_index")), part(document, "item"), events)

    def _item(self, place: int, item: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        """Take a whole item; its text only when no delta told it."""
        match item.get("type"):
            case "function_call":
                self._whole_call(self._call_of(place, item), item, events)
            case "reasoning":
                if item.get("encrypted_content"):
                    kept = {name: value for name, value in item.items() if value is not None and name != "status"}
                    events.append(ReasoningPiece(self._reasoning.flush(), ITEM + dumps_text(kept)))
            case "message":
                content = item.get("content")
                for entry in content if isinstance(content, list) and place not in self._told else ():
                    if isinstance(entry, dict):
                        self._refused = self._refused or "refusal" in entry
                        self._say(entry.get("text") or entry.get("refusal"), events)
            case _:
                return  # items of the provider's own tools are no one else's business
        self._told.add(place)

    def _whole_call(self, call: _Call, item: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        """Take a call as it is when it is whole: that counts, whatever the deltas told."""
        told, before = item.get("arguments"), bool(call.arguments)
        call.arguments = Growing(told if isinstance(told, str) else dumps_text(told or {}))
        call.name, call.id = join_surrogates(str(item.get("name") or "")), _id_of(item)
        call.ended = item.get("status") != "incomplete"
        events += call.told("" if before else str(call.arguments))

    def _completed(self, document: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        response = part(document, "response")
        if model := response.get("model"):
            self._model = str(model)
        self._id = str(response.get("id") or "") or None
        self._tier = str(response.get("service_tier") or "") or None
        output = response.get("output")
        known = {call.id for call in self._calls if call.ended}
        for place, item in enumerate(output if isinstance(output, list) else ()):
            if place not in self._told and isinstance(item, dict) and item.get("call_id") not in known:
                self._item(place, item, events)
        self._raw = str(response.get("status") or document.get("type")).removeprefix("response.")
        if self._raw == "incomplete":
            self._raw = str(part(response, "incomplete_details").get("reason") or "incomplete")
            self._reason = _INCOMPLETE.get(self._raw, "other")
        if left := self._text.flush():
            events.append(TextPiece(left))
        self._give_calls(events)
        self._count(response)
        if self.usage is not None:
            events.append(UsageReport(self.usage))
        self.finished = self.done = True

    def _failed(self, document: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        del events
        response = part(document, "response")
        self._count(response)
        told = in_band(self._provider, {"error": response.get("error") or {}}, self._secrets)
        raise told or failure("server", self._provider, f"The model provider {self._provider} failed.")

    def _count(self, response: Mapping[str, Any]) -> None:
        told = part(response, "usage")
        if told:
            self.usage = Usage(
                prompt_tokens=count(told.get("input_tokens")),
                completion_tokens=count(told.get("output_tokens")),
                cached_tokens=count(part(told, "input_tokens_details").get("cached_tokens")),
                reasoning_tokens=count(part(told, "output_tokens_details").get("reasoning_tokens")),
            )

    def _say(self, text: Any, events: list[ProviderEvent]) -> None:
        if isinstance(text, str) and text and (ready := self._text.push(text)):
            events.append(TextPiece(ready))

    def _give_calls(self, events: list[ProviderEvent]) -> None:
        used: set[str] = set()
        calls = tuple(self._call(call, used) for call in self._calls)
        if calls:
            events.append(CallsReady(calls))

    def _call(self, call: _Call, used: set[str]) -> ToolCall:
        call_id = call.id if call.id and call.id not in used else self._new_id()
        used.add(call_id)
        cut = not call.ended and self._reason == "length"
        nothing: dict[str, Any] | None = None if cut else {}
        text = str(call.arguments)
        arguments = parse_arguments(text) if text.strip() else nothing
        invalid = text if arguments is None else None
        return ToolCall(call_id, call.name, arguments or {}, invalid=invalid)
