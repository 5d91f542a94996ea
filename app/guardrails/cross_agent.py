"""Guards of one agent on another's stream, for hosts that join streams of several agents themselves.

An observer without the right to interrupt only sees: its blocks and changes count as flags.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from typing import Any

from app.domain.frozen import dataclass
from app.guardrails.active import ActiveGuard
from app.guardrails.asking import Asking
from app.guardrails.base import Action, Entry, GuardContext, OutputChunk, shown
from app.guardrails.dispatch import Verdict, judge

Chunk = dict[str, Any]
"""A chunk as a host reads it."""

_TEXTS = {"text_delta": "text_delta", "final_response": "final_response_text"}


@dataclass(frozen=True, slots=True)
class Observer:
    """A guard that watches other agents: those that are named, or all when none is.

    `may_interrupt` lets it change and block what it sees.
    """

    guard: ActiveGuard
    agents: Collection[str] = ()
    may_interrupt: bool = False


async def watched(
    chunks: AsyncIterator[Chunk], agent: str, observers: Sequence[Observer], context: GuardContext, asking: Asking
) -> AsyncIterator[Chunk]:
    """Give an agent's chunks as its observers leave them; a block is one error chunk, and the stream ends.

    Pieces of text are shown to guards that want them, all other chunks to all. A guard that fails is skipped.
    """
    watching = [observer for observer in observers if not observer.agents or agent in observer.agents]
    async for chunk in chunks:
        piece = chunk["type"] == "text_delta" and not chunk.get("is_final")
        asked = [entry for entry in watching if not piece or entry.guard.config.evaluate_streaming_chunks]
        verdict = await _judge(asking, asked, context, chunk)
        if verdict.block is not None:
            yield _refusal(chunk, verdict.block)
            return
        yield _changed(chunk, verdict)


async def _judge(
    asking: Asking, observers: Sequence[Observer], context: GuardContext, chunk: Chunk
) -> Verdict[OutputChunk]:
    seen = OutputChunk(
        chunk["type"], chunk.get(_TEXTS.get(chunk["type"], "")), is_final=bool(chunk.get("is_final")), fields=chunk
    )

    def question(guard: ActiveGuard, value: OutputChunk) -> object:
        return guard.on_output(context, value, ()) if guard.on_output is not None else None

    interrupting = [observer.guard for observer in observers if observer.may_interrupt]
    watching = [observer.guard for observer in observers if not observer.may_interrupt]
    verdict = await judge(asking, interrupting, seen, question, OutputChunk.with_text)
    told = await judge(asking, watching, verdict.value, question, lambda value, _: value)
    flags = tuple(_flag(entry) for entry in told.entries)
    return replace(verdict, entries=(*verdict.entries, *flags))


def _flag(entry: Entry) -> Entry:
    if entry.evaluation.action in {Action.ALLOW, Action.FLAG}:
        return entry
    return replace(entry, evaluation=replace(entry.evaluation, action=Action.FLAG))


def _changed(chunk: Chunk, verdict: Verdict[OutputChunk]) -> Chunk:
    name = _TEXTS.get(chunk["type"])
    text = {name: verdict.value.text} if verdict.changed and name is not None else {}
    if not verdict.entries:
        return {**chunk, **text}
    metadata = {**(chunk.get("metadata") or {}), "guardrail": {"output": shown(verdict.entries)}}
    return {**chunk, **text, "metadata": metadata}


def _refusal(chunk: Chunk, block: Entry) -> Chunk:
    kept: Chunk = {name: value for name, value in chunk.items() if name in {"stream_id", "persona_id", "timestamp"}}
    said = {"type": "error", "gmi_instance_id": "guardrail", "is_final": True}
    metadata = {"guardrail": {"output": shown([block])}}
    return {**kept, **said, "code": block.code, "message": block.message, "metadata": metadata}
