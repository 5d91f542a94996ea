"""Guards for tests: each follows a rule of one line and keeps what it was asked."""

# ruff: noqa: ARG002, ARG005 - what a guard is given is fixed, and not each one needs all of it

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.domain.turn import Caller, TurnInput
from app.guardrails.base import Action, Evaluation, GuardConfig, GuardContext, OutputChunk, Sources

CONTEXT = GuardContext("ada", "chat-1")
ALLOW = Evaluation(Action.ALLOW)
FLAG = Evaluation(Action.FLAG, "odd")
BLOCK = Evaluation(Action.BLOCK, "not that", "NOT_THAT")

Rule = Callable[[str | None], Evaluation | None]


@dataclass
class Acting:
    """Judges texts by a rule, at input and at output; other chunks by the same rule with None."""

    rule: Rule
    id: str | None = None
    config: GuardConfig = field(default_factory=GuardConfig)
    asked: list[Any] = field(default_factory=list)
    sources: list[Sources] = field(default_factory=list)
    contexts: list[GuardContext] = field(default_factory=list)

    async def evaluate_input(self, context: GuardContext, turn: TurnInput) -> Evaluation | None:
        self.asked.append(turn.input)
        self.contexts.append(context)
        return self.rule(turn.input if isinstance(turn.input, str) else None)

    async def evaluate_output(self, context: GuardContext, chunk: OutputChunk, sources: Sources) -> Evaluation | None:
        self.asked.append(chunk)
        self.sources.append(sources)
        self.contexts.append(context)
        return self.rule(chunk.text)

    @property
    def texts(self) -> list[str | None]:
        return [chunk.text if isinstance(chunk, OutputChunk) else chunk for chunk in self.asked]

    @property
    def kinds(self) -> list[str]:
        return [chunk.type for chunk in self.asked if isinstance(chunk, OutputChunk)]


class OutputOnly(Acting):
    evaluate_input = None  # type: ignore[assignment]


class InputOnly(Acting):
    evaluate_output = None  # type: ignore[assignment]


def says(evaluation: Evaluation | None) -> Rule:
    return lambda text: evaluation


def replaces(old: str, new: str) -> Rule:
    """Sanitize texts that hold `old`."""

    def rule(text: str | None) -> Evaluation | None:
        if text is None or old not in text:
            return None
        return Evaluation(Action.SANITIZE, f"no {new}", modified_text=text.replace(old, new))

    return rule


def blocks(word: str, replacement: str | None = None) -> Rule:
    """Block texts that hold the word."""

    def rule(text: str | None) -> Evaluation | None:
        if text is None or word not in text:
            return ALLOW
        return Evaluation(Action.BLOCK, "not that", "NOT_THAT", replacement_text=replacement)

    return rule


def breaks(text: str | None) -> Evaluation | None:
    message = "the guard is broken"
    raise RuntimeError(message)


@dataclass
class Hanging(Acting):
    """Never answers, and does not go at once when it is cancelled."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def evaluate_input(self, context: GuardContext, turn: TurnInput) -> Evaluation | None:
        return await self._hang()

    async def evaluate_output(self, context: GuardContext, chunk: OutputChunk, sources: Sources) -> Evaluation | None:
        return await self._hang()

    async def _hang(self) -> Evaluation | None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.gone.set()
            message = "too late"
            raise RuntimeError(message) from None
        return None


def turn_of(text: str | list[dict[str, Any]]) -> TurnInput:
    return TurnInput(Caller("ada"), "chat-1", "chat-1", text, provider_api_keys={"openai": "sk-secret"})


def sanitizer(rule: Rule, name: str | None = None, **more: Any) -> Acting:
    return Acting(rule, name, GuardConfig(can_sanitize=True, **more))


def streaming(rule: Rule, name: str | None = None, **more: Any) -> Acting:
    return Acting(rule, name, GuardConfig(evaluate_streaming_chunks=True, **more))


def ids(entries: Sequence[Any]) -> list[str | None]:
    return [entry.guard_id for entry in entries]


def final(text: str | None, **fields: Any) -> OutputChunk:
    return OutputChunk("final_response", text, is_final=True, fields=fields)


def piece(text: str, so_far: str = "", before: int = 0) -> OutputChunk:
    return OutputChunk("text_delta", text, so_far=so_far, before=before)
