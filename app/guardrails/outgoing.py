"""Judges what one operation says: pieces while they are written, sentences, the whole reply, what guards ask for."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.guardrails.active import ActiveGuard
from app.guardrails.asking import Asking
from app.guardrails.base import GuardContext, OutputChunk, Sources
from app.guardrails.dispatch import Verdict, judge

REACH: Final = 2000
"""How many characters of the text before it a guard is told beside a piece."""


class OutputJudge:
    """The output guards of one operation's stream. Each counts its streaming evaluations by itself, failed ones too."""

    def __init__(
        self, asking: Asking, guards: Sequence[ActiveGuard], context: GuardContext, sources: Sources = ()
    ) -> None:
        """`sources` are known from the start; the stream may bring others."""
        self._asking = asking
        self._context = context
        self._guards = [guard for guard in guards if guard.on_output is not None]
        self._streaming = [guard for guard in self._guards if guard.config.evaluate_streaming_chunks]
        self._counts: dict[ActiveGuard, int] = {}
        self._kinds = frozenset[str]().union(*(guard.config.also for guard in self._guards))
        self._sources = sources

    @property
    def is_whole(self) -> bool:
        """Tell whether a guard can only judge the whole reply."""
        return any(guard.config.whole_reply for guard in self._guards)

    @property
    def is_used_up(self) -> bool:
        """Tell whether a guard has judged as many pieces as it may: what follows has to wait for the whole reply."""
        return any(not self._may(guard) for guard in self._guards)

    @property
    def judges_pieces(self) -> bool:
        """Tell whether a guard wants to see text while it is written."""
        return bool(self._streaming)

    def asks_for(self, kind: str) -> bool:
        """Tell whether a guard wants to see chunks of that type."""
        return kind in self._kinds

    def learn(self, updates: Mapping[str, Any]) -> None:
        """Take sources from a `metadata_update` or a `final_response`; an empty list counts for nothing."""
        found = updates.get("rag_sources")
        if isinstance(found, list | tuple) and found:
            self._sources = found

    async def piece(self, text: str, so_far: str = "", before: int = 0) -> Verdict[OutputChunk]:
        """Judge a piece as it comes, by the guards that want that, as often as each may."""
        guards = [guard for guard in self._streaming if self._may(guard)]
        return await self._judge(guards, _delta(text, so_far, before), counted=True)

    async def sentences(self, text: str, so_far: str = "", before: int = 0) -> Verdict[OutputChunk]:
        """Judge whole sentences before they go out, by all guards; ask `is_used_up` before."""
        return await self._judge(self._guards, _delta(text, so_far, before), counted=True)

    async def final(self, chunk: OutputChunk) -> Verdict[OutputChunk]:
        """Judge a final chunk, by all guards."""
        self.learn(chunk.fields)
        return await self._judge(self._guards, chunk)

    async def other(self, chunk: OutputChunk) -> Verdict[OutputChunk]:
        """Judge a chunk by the guards that asked for its type. It has no text, so that none can be changed."""
        return await self._judge([guard for guard in self._guards if chunk.type in guard.config.also], chunk)

    def _may(self, guard: ActiveGuard) -> bool:
        most = guard.config.max_streaming_evaluations
        return most is None or self._counts.get(guard, 0) < most

    async def _judge(
        self, guards: Sequence[ActiveGuard], chunk: OutputChunk, *, counted: bool = False
    ) -> Verdict[OutputChunk]:
        def question(guard: ActiveGuard, value: OutputChunk) -> object:
            if counted:
                self._counts[guard] = self._counts.get(guard, 0) + 1
            return guard.on_output(self._context, value, self._sources) if guard.on_output is not None else None

        return await judge(self._asking, guards, chunk, question, OutputChunk.with_text)


def _delta(text: str, so_far: str, before: int) -> OutputChunk:
    return OutputChunk("text_delta", text, fields={"text_delta": text}, so_far=so_far[-REACH:], before=before)
