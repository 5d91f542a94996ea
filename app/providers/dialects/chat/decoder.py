"""Reads the events of one Chat Completions response."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from app.domain.errors import ProviderError
from app.domain.ids import fresh_call_id
from app.domain.usage import Usage
from app.providers.base import (
    CallsReady,
    Finish,
    FinishReason,
    ProviderEvent,
    ReasoningPiece,
    TextPiece,
    UsageReport,
)
from app.providers.compat import ChatCompat
from app.providers.dialects.chat.calls import CallAssembler
from app.providers.documents import document_of
from app.providers.errors import failure, in_band
from app.providers.think import ThinkSplitter
from app.providers.wire import TextJoiner, count, part

_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "stop_sequence": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "refusal": "refusal",
}
_FAILED: Final[dict[str, str]] = {
    "error": "server",
    "abort": "server",
    "aborted": "server",
    "network_error": "server",
    "insufficient_system_resource": "overloaded",
    "malformed_function_call": "server",
    "engine_overloaded": "overloaded",
}


class ChatDecoder:
    """See `app.providers.dialect.Decoder`. The answer is whole with a finish reason or with `[DONE]`."""

    def __init__(
        self,
        provider: str,
        compat: ChatCompat,
        secrets: tuple[str, ...] = (),
        new_id: Callable[[], str] = fresh_call_id,
    ) -> None:
        self.finished = False
        self.done = False
        self.usage: Usage | None = None
        self._provider = provider
        self._secrets = secrets
        self._reasoning_fields = compat.reasoning_fields
        self._calls = CallAssembler(new_id)
        self._text = TextJoiner()
        self._reasoning = TextJoiner()
        self._tags = ThinkSplitter() if compat.think_tags else None
        self._raw: str | None = None
        self._model: str | None = None
        self._id: str | None = None
        self._tier: str | None = None
        self._output = False
        self._refused = False
        self._gave_calls = False

    def feed(self, event: str, data: bytes) -> list[ProviderEvent]:
        """See `Decoder.feed`."""
        if self.done:
            return []
        if data[:1] == b"[" and data.strip() == b"[DONE]":
            self.finished = self.done = True
            return []
        document = document_of(
            self._provider, event, data, self._secrets, ours=_is_none if event == "error" else _is_piece
        )
        events: list[ProviderEvent] = []
        choices = document.get("choices")
        choice: Mapping[str, Any] = {}
        if isinstance(choices, list) and choices and isinstance(choices[0], dict) and not choices[0].get("index"):
            choice = choices[0]
            self._choice(choice, events)
        if (told := _usage(document, choice)) is not None:
            self.usage = told
            events.append(UsageReport(told))
        self._about(document)
        return events

    def _about(self, document: Mapping[str, Any]) -> None:
        """Keep what the server tells of the answer; the tier that served it may be told late."""
        if self._model is None and (model := document.get("model")):
            self._model = str(model)
        if self._id is None and (told := document.get("id")):
            self._id = str(told)
        if tier := document.get("service_tier"):
            self._tier = str(tier)

    def end(self) -> list[ProviderEvent]:
        """See `Decoder.end`."""
        if not self.finished:
            raise failure("truncated", self._provider, f"The answer of {self._provider} broke off before its end.")
        if self._raw is None and not (self._output or self._calls.begun or self.usage):
            message = f"The model provider {self._provider} ended its answer before it began."
            raise failure("server", self._provider, message)
        events: list[ProviderEvent] = []
        self._flush(events)
        self._give_calls(events)
        events.append(Finish(self._reason(), self._raw, self._model, self._id, self._tier))
        return events

    def _choice(self, choice: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        delta = choice.get("delta", choice.get("message"))
        if isinstance(delta, dict):
            self._delta(delta, events)
        raw = str(choice.get("finish_reason") or "")
        native = str(choice.get("native_finish_reason") or "").lower()
        if raw in _FAILED or choice.get("error") or (native in _FAILED and not self._output):
            raise self._failed(choice, raw, native)
        if raw:
            self._raw = raw
            self.finished = True
            self._flush(events)
            self._give_calls(events)

    def _failed(self, choice: Mapping[str, Any], raw: str, native: str) -> ProviderError:
        told = in_band(self._provider, {"choices": [choice]}, self._secrets)
        if told is not None:
            return told
        word = raw if raw in _FAILED else native
        message = f"The model provider {self._provider} gave up while it answered ({word})."
        return failure(_FAILED.get(word, "server"), self._provider, message)

    def _delta(self, delta: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        content = delta.get("content")
        if len(delta) == 1 and isinstance(content, str):
            self._say(content, events)
            return
        for name in self._reasoning_fields:
            if reasoning := delta.get(name):
                if isinstance(reasoning, str):
                    self._think(reasoning, events)
                break
        if isinstance(content, str):
            self._say(content, events)
        elif isinstance(content, list):
            self._parts(content, events)
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            self._refused = True
            self._say(refusal, events)
        calls = delta.get("tool_calls")
        for entry in calls if isinstance(calls, list) else ():
            if isinstance(entry, dict):
                events += self._calls.push(entry)

    def _parts(self, parts: Sequence[Any], events: list[ProviderEvent]) -> None:
        """Read content that comes as a list of parts; a thinking part holds a list of texts again."""
        for piece in parts:
            if not isinstance(piece, dict):
                continue
            if isinstance(text := piece.get("text"), str) and text:
                self._say(text, events)
            thinking = piece.get("thinking")
            for entry in thinking if isinstance(thinking, list) else [{"text": thinking}]:
                if isinstance(entry, dict) and isinstance(text := entry.get("text"), str) and text:
                    self._think(text, events)

    def _say(self, text: str, events: list[ProviderEvent]) -> None:
        if text and (ready := self._text.push(text)):
            self._told(ready, events)

    def _told(self, text: str, events: list[ProviderEvent]) -> None:
        if self._tags is None:
            self._output = True
            events.append(TextPiece(text))
            return
        for is_thought, piece in self._tags.push(text):
            self._piece(is_thought, piece, events)

    def _piece(self, is_thought: bool, text: str, events: list[ProviderEvent]) -> None:  # noqa: FBT001 - a pair, unpacked
        if is_thought:
            events.append(ReasoningPiece(text))
        else:
            self._output = True
            events.append(TextPiece(text))

    def _think(self, text: str, events: list[ProviderEvent]) -> None:
        if ready := self._reasoning.push(text):
            events.append(ReasoningPiece(ready))

    def _flush(self, events: list[ProviderEvent]) -> None:
        if left := self._reasoning.flush():
            events.append(ReasoningPiece(left))
        if left := self._text.flush():
            self._told(left, events)
        for is_thought, piece in self._tags.flush() if self._tags is not None else ():
            self._piece(is_thought, piece, events)

    def _give_calls(self, events: list[ProviderEvent]) -> None:
        calls = self._calls.take(cut=_REASONS.get(self._raw or "") == "length")
        if calls:
            self._gave_calls = True
            events.append(CallsReady(calls))

    def _reason(self) -> FinishReason:
        if self._gave_calls:
            return "tool_calls"
        if self._refused:
            return "refusal"
        return "stop" if self._raw is None else _REASONS.get(self._raw, "other")


def _is_piece(document: Mapping[str, Any]) -> bool:
    """Tell what nearly every event is; its first choice is looked at for an error in `ChatDecoder._choice`."""
    return "choices" in document and "error" not in document


def _is_none(_: Mapping[str, Any]) -> bool:
    return False


def _usage(document: Mapping[str, Any], choice: Mapping[str, Any]) -> Usage | None:
    told = document.get("usage") or choice.get("usage")
    if not told and "x_groq" in document:
        told = part(document, "x_groq").get("usage")
    if not isinstance(told, dict):
        return None
    prompt = part(told, "prompt_tokens_details")
    return Usage(
        prompt_tokens=count(told.get("prompt_tokens")),
        completion_tokens=count(told.get("completion_tokens")),
        cached_tokens=count(prompt.get("cached_tokens") or told.get("prompt_cache_hit_tokens")),
        reasoning_tokens=count(part(told, "completion_tokens_details").get("reasoning_tokens")),
    )
