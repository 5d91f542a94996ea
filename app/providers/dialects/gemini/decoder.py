"""Reads the events of one Gemini response. No event says that it is the last one: the body's end does."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from app.domain.ids import fresh_call_id
from app.domain.messages import ToolCall
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
from app.providers.dialects.gemini.body import EXTRA
from app.providers.documents import document_of
from app.providers.errors import failure, shown
from app.providers.wire import TextJoiner, count, dumps_text, join_surrogates, parse_arguments, part

_REASONS: Final[dict[str, FinishReason]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "LANGUAGE": "content_filter",
    "IMAGE_SAFETY": "content_filter",
}
_FAILED: Final = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"})
_COUNTS: Final = (
    "promptTokenCount",
    "toolUsePromptTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "cachedContentTokenCount",
)


class GeminiDecoder:
    """See `app.providers.dialect.Decoder`. The answer is whole with a finish reason."""

    def __init__(self, provider: str, secrets: tuple[str, ...] = (), new_id: Callable[[], str] = fresh_call_id) -> None:
        self.finished = False
        self.done = False
        self.usage: Usage | None = None
        self._provider = provider
        self._secrets = secrets
        self._new_id = new_id
        self._counts: dict[str, int] = {}
        self._calls: list[ToolCall] = []
        self._given = 0
        self._text = TextJoiner()
        self._reasoning = TextJoiner()
        self._output = False
        self._raw: str | None = None
        self._model: str | None = None
        self._id: str | None = None

    def feed(self, event: str, data: bytes) -> list[ProviderEvent]:
        """See `Decoder.feed`."""
        events: list[ProviderEvent] = []
        if data.strip() == b"[DONE]":
            return events
        document = document_of(self._provider, event, data, self._secrets)
        candidates = document.get("candidates")
        if isinstance(candidates, list) and candidates and isinstance(candidates[0], dict):
            self._candidate(candidates[0], events)
        self._check_prompt(document)
        if model := document.get("modelVersion"):
            self._model = str(model)
        if told := document.get("responseId"):
            self._id = str(told)
        self._count(part(document, "usageMetadata"), events)
        return events

    def end(self) -> list[ProviderEvent]:
        """See `Decoder.end`."""
        if not self.finished:
            raise failure("truncated", self._provider, f"The answer of {self._provider} broke off before its end.")
        events: list[ProviderEvent] = []
        self._give_calls(events)
        reason: FinishReason = "tool_calls" if self._calls else _REASONS.get(self._raw or "", "other")
        if reason == "stop" and not self._output:
            reason = "other"  # an empty answer is known to come by mistake; whoever asked decides
        events.append(Finish(reason, self._raw, self._model, self._id))
        return events

    def _check_prompt(self, document: Mapping[str, Any]) -> None:
        blocked = part(document, "promptFeedback").get("blockReason")
        if blocked:
            self._count(part(document, "usageMetadata"), [])
            message = f"The model provider {self._provider} refused the content ({shown(str(blocked))})."
            raise failure("content_filter", self._provider, message)

    def _candidate(self, candidate: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        parts = part(candidate, "content").get("parts")
        for piece in parts if isinstance(parts, list) else ():
            if isinstance(piece, dict):
                self._part(piece, events)
        raw = str(candidate.get("finishReason") or "")
        if raw in _FAILED:
            message = f"The model provider {self._provider} gave up while it answered ({raw})."
            raise failure("server", self._provider, message)
        if raw:
            self._raw = raw
            self.finished = True
            if left := self._text.flush():
                events.append(TextPiece(left))
            self._give_calls(events)

    def _part(self, piece: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        text = piece.get("text")
        signature = piece.get("thoughtSignature")
        if isinstance(piece.get("functionCall"), dict):
            self._call(piece["functionCall"], signature, events)
        elif piece.get("thought"):
            thought = self._reasoning.push(text) if isinstance(text, str) else ""
            if thought or signature:
                events.append(ReasoningPiece(thought, str(signature) if signature else None))
        elif isinstance(text, str) and text and (ready := self._text.push(text)):
            self._output = True
            events.append(TextPiece(ready))

    def _call(self, function: Mapping[str, Any], signature: Any, events: list[ProviderEvent]) -> None:
        told = function.get("args")
        arguments = parse_arguments(told) if isinstance(told, str) else told
        invalid = None
        if told is None:
            arguments = {}
        elif not isinstance(arguments, dict):
            invalid, arguments = str(told), {}
        own = {"id": function.get("id"), "signature": signature}
        extra = {name: value for name, value in own.items() if value}
        used = {call.id for call in self._calls}
        given = str(function.get("id") or "")
        name = join_surrogates(str(function.get("name") or ""))
        events.append(CallStarted(len(self._calls), name, given or None))
        if told:
            events.append(CallPiece(len(self._calls), told if isinstance(told, str) else dumps_text(told)))
        self._calls.append(
            ToolCall(
                id=given if given and given not in used else self._new_id(),
                name=name,
                arguments=dict(arguments or {}),
                invalid=invalid,
                extra={EXTRA: extra} if extra else None,
            )
        )

    def _give_calls(self, events: list[ProviderEvent]) -> None:
        if fresh_calls := self._calls[self._given :]:
            self._given = len(self._calls)
            events.append(CallsReady(tuple(fresh_calls)))

    def _count(self, told: Mapping[str, Any], events: list[ProviderEvent]) -> None:
        """Merge counts field by field; thoughts are beside the candidates there, and part of the completion here."""
        if not told:
            return
        for name in _COUNTS:
            self._counts[name] = max(self._counts.get(name, 0), count(told.get(name)))
        prompt, tools, candidates, thoughts, cached = (self._counts[name] for name in _COUNTS)
        self.usage = Usage(prompt + tools, candidates + thoughts, cached, thoughts)
        events.append(UsageReport(self.usage))
