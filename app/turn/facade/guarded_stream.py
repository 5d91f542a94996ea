"""The output guardrails of one operation's stream: what it says is judged here, before it is stored or seen.

Text goes out in one of three ways. `stream`: piece by piece, and the whole reply is judged at its end. `hold`: when the
whole reply has been judged. `sentence`: one sentence behind what is written, so that what spans two is seen as well.
No more is held than the setting says: past that it is judged in parts.
What a verdict on the whole takes back after it has gone out is taken out of the log with the outcome.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from time import perf_counter
from typing import Final, Literal

from app.domain.chunks import StreamChunk
from app.domain.generators import aclosing
from app.domain.text import Growing
from app.guardrails.base import FAILED, Action, Entry, Evaluation, OutputChunk
from app.guardrails.dispatch import Verdict
from app.guardrails.outgoing import REACH, OutputJudge
from app.guardrails.registry import Guards, Report
from app.guardrails.sentences import ends
from app.turn.delivery import emitter
from app.turn.facade.verdicts import blocked, noted, rewritten, rewritten_pause
from app.turn.gmi.structured import StructuredReply
from app.turn.orchestrator.effects import NewPause, Outcome
from app.turn.orchestrator.execution import Emission
from app.turn.orchestrator.operation import Operation

MOST_APART: Final = 64
"""So many pieces of a reply that is held back go out as the model cut them; each takes eighty times its letters."""

JOINED: Final = 1000
"""Of more, neighbouring ones are joined to pieces of about as many characters."""

LAST_WORD_SECONDS: Final = 10.0
"""How long the text of an operation that was cut short is judged; without a verdict it is not kept."""

_NO_VERDICT: Final = Entry(
    None, Evaluation(Action.BLOCK, "The text was not judged in time.", FAILED, metadata={"fail_closed": True})
)


class GuardedStream:
    """Judges what one operation says. `held_seconds` is how long text waited for its verdict."""

    def __init__(
        self,
        operation: Operation,
        judge: OutputJudge,
        guards: Guards,
        mode: Literal["stream", "hold", "sentence"],
        *,
        schema: StructuredReply | None = None,
    ) -> None:
        """With a guard that needs the whole reply, `sentence` is `hold`. `schema` is that of a reply that is data."""
        self._schema = schema
        self._operation = operation
        self._judge = judge
        self._guards = guards
        self._mode = "hold" if mode == "sentence" and judge.is_whole else mode
        self._released = Growing()
        self._tail = ""
        self._before = 0
        self._kept: list[StreamChunk] = []
        self._most_apart = MOST_APART
        self._held = 0
        self._buffer = ""
        self._seen = 0
        self._waits_since: float | None = None
        self.held_seconds = 0.0

    async def read(self, emissions: AsyncIterator[Emission]) -> AsyncIterator[Emission]:
        """Give what may go out. A block closes `emissions`, which stops the GMI, and is the outcome."""
        outcome: Outcome | None = None
        async with aclosing(emissions) as items:
            async for item in items:
                passed = await self._judged(item) if isinstance(item, Outcome) else await self._said(item)
                if isinstance(passed, Outcome):
                    outcome = passed
                    break
                if passed is not None:
                    yield passed
        if outcome is not None:
            yield outcome

    async def last_word(self, outcome: Outcome) -> Outcome:
        """Judge the outcome of an operation that was cut short or failed: its end stays, its text must pass."""
        try:
            async with asyncio.timeout(LAST_WORD_SECONDS):
                return await self._judged(outcome, last=True)
        except TimeoutError:
            return self._without_text(outcome, _NO_VERDICT)

    # While it is written ----------------------------------------------------------------------------------------

    async def _said(self, chunk: StreamChunk) -> Emission | None:
        if chunk.type == "text_delta":
            text = chunk.fields["text_delta"]
            if self._mode == "sentence":
                return await self._sentences(text)
            return await self._piece(chunk, text)
        if chunk.type == "metadata_update":
            self._judge.learn(chunk.fields.get("updates") or {})
        if not self._judge.asks_for(chunk.type):
            return chunk
        verdict = await self._judge.other(OutputChunk(chunk.type, None, fields=chunk.fields))
        return await self._block(verdict.block) if verdict.block is not None else noted(chunk, verdict.entries)

    async def _piece(self, chunk: StreamChunk, text: str) -> Emission | None:
        passed: StreamChunk | None = chunk
        if self._judge.judges_pieces:
            verdict = await self._judge.piece(text, self._tail, self._before)
            if verdict.block is not None:
                return await self._block(verdict.block)
            passed = _delta(verdict)
            self._went_on(verdict.value.text or "")
        if passed is None:
            return None
        if self._mode == "hold":
            self._wait()
            self._keep(passed)
            self._held += len(passed.fields["text_delta"])
            return await self._part() if self._held > self._guards.max_held else None
        self._released.add(passed.fields["text_delta"])
        return passed

    def _keep(self, piece: StreamChunk) -> None:
        """Hold a piece back; of very many, those that nothing is told of are joined."""
        self._kept.append(piece)
        if len(self._kept) > self._most_apart:
            self._kept = _joined(self._kept)
            self._most_apart = 2 * len(self._kept) + MOST_APART

    async def _sentences(self, text: str) -> Emission | None:
        """Judge when a sentence is over; all sentences but the newest go out then."""
        self._wait()
        self._buffer += text
        places = list(ends(self._buffer))
        if not places or places[-1] <= self._seen or self._judge.is_used_up:
            return await self._part() if len(self._buffer) > self._guards.max_held else None
        verdict = await self._judge.sentences(self._buffer[: places[-1]], self._tail, self._before)
        if verdict.block is not None:
            return await self._block(verdict.block)
        judged = verdict.value.text or ""
        self._buffer = judged + self._buffer[places[-1] :]
        before = [place for place in ends(self._buffer) if place < len(judged)]
        stop = before[-1] if before else 0
        self._seen = len(judged) - stop
        if not stop:
            return None
        ready, self._buffer = self._buffer[:stop], self._buffer[stop:]
        self._went_on(ready)
        self._released.add(ready)
        self._waited()
        self._wait()
        return noted(emitter.text_delta(ready), [entry for entry in verdict.entries if _speaks(entry)])

    async def _part(self) -> Emission | None:
        """Judge what is held as if it were the reply, since there is too much of it; its last sentence is kept back.

        The whole reply is judged at its end all the same.
        """
        text = self._buffer if self._mode == "sentence" else "".join(piece.fields["text_delta"] for piece in self._kept)
        told = {"final_response_text": text}
        verdict = await self._judge.final(OutputChunk("final_response", text, is_final=True, fields=told))
        if verdict.block is not None:
            return await self._block(verdict.block)
        judged = verdict.value.text or ""
        before = [place for place in ends(judged) if place < len(judged)]
        stop = before[-1] if before else len(judged)
        ready, rest = judged[:stop], judged[stop:]
        self._held = self._seen = len(rest)
        if self._mode == "sentence":
            self._buffer = rest
            self._went_on(ready)
        else:
            # Here the pieces were told as they came.
            self._kept = [emitter.text_delta(rest)] if rest else []
        self._waited()
        if not ready:
            return None
        self._released.add(ready)
        return noted(emitter.text_delta(ready), [entry for entry in verdict.entries if _speaks(entry)])

    def _went_on(self, text: str) -> None:
        self._tail = (self._tail + text)[-REACH:]
        self._before += len(text)

    def _wait(self) -> None:
        if self._waits_since is None:
            self._waits_since = perf_counter()

    def _waited(self) -> None:
        if self._waits_since is not None:
            self.held_seconds += perf_counter() - self._waits_since
            self._waits_since = None

    # At the end -------------------------------------------------------------------------------------------------

    async def _judged(self, outcome: Outcome, *, last: bool = False) -> Outcome:
        if outcome.pause is not None:
            return await self._paused(outcome, outcome.pause)
        for chunk in outcome.chunks:
            if chunk.type == "error":
                verdict = await self._judge.final(OutputChunk("error", None, is_final=True, fields=chunk.fields))
                if verdict.block is not None:
                    return await self._block(verdict.block, outcome)
                outcome = _replaced(outcome, chunk, noted(chunk, verdict.entries))
                await self._report(verdict, None)
        if outcome.final_response is None:
            return await self._failed(outcome)
        return await self._replied(outcome, last=last)

    async def _replied(self, outcome: Outcome, *, last: bool) -> Outcome:
        """Judge the whole reply; of a turn that failed without one, what was sent is judged for the log's sake."""
        failed = outcome.text is None
        text = (str(self._released) or None) if failed else outcome.text
        fields = outcome.final_response or {}
        verdict = await self._judge.final(OutputChunk("final_response", text, is_final=True, fields=fields))
        self._waited()
        if verdict.block is not None:
            if last or failed:
                await self._report(verdict, verdict.block.evaluation.replacement_text or None)
                return self._without_text(outcome, verdict.block)
            return await self._block(verdict.block, outcome)
        await self._report(verdict, None if failed else verdict.value.text)
        if verdict.changed and failed:
            return replace(outcome, redact=bool(self._released))
        if verdict.changed:
            outcome = rewritten(self._operation, outcome, verdict.value.text, _changer(verdict), self._schema)
        outcome = self._shown(outcome, verdict)
        return outcome if failed else self._released_rest(outcome, changed=verdict.changed)

    async def _paused(self, outcome: Outcome, pause: NewPause) -> Outcome:
        """Judge the text before a request as a reply of its own, and the request where a guard asks for it."""
        if outcome.text and outcome.text.strip():
            fields = {"final_response_text": outcome.text}
            verdict = await self._judge.final(OutputChunk("final_response", outcome.text, is_final=True, fields=fields))
            self._waited()
            if verdict.block is not None:
                return await self._block(verdict.block, outcome)
            if verdict.changed:
                outcome = rewritten_pause(outcome, pause, verdict.value.text, _changer(verdict))
            outcome = self._released_rest(outcome, changed=verdict.changed, tells_text=True)
        for chunk in outcome.chunks:
            if self._judge.asks_for(chunk.type):
                verdict = await self._judge.other(OutputChunk(chunk.type, None, fields=chunk.fields))
                if verdict.block is not None:
                    return await self._block(verdict.block, outcome)
                outcome = _replaced(outcome, chunk, noted(chunk, verdict.entries))
        return outcome

    async def _failed(self, outcome: Outcome) -> Outcome:
        """The failure has no reply; what was sent of one stays in the log only if it passes."""
        text = str(self._released)
        if not text.strip():
            return outcome
        verdict = await self._judge.final(
            OutputChunk("final_response", text, is_final=True, fields={"final_response_text": text})
        )
        return replace(outcome, redact=verdict.block is not None or verdict.changed)

    def _released_rest(self, outcome: Outcome, *, changed: bool, tells_text: bool = False) -> Outcome:
        """Give the outcome with the text that is still to go out in front; what has gone out and is not in it, goes.

        `tells_text`: no other chunk of the outcome tells the text.
        """
        sent, text = str(self._released), outcome.text or ""
        redact = changed and not text.startswith(sent)
        if redact:
            rest = text if tells_text else ""
        elif self._mode == "sentence":
            rest = text[len(sent) :] if text.startswith(sent) else self._buffer
        else:
            rest = text[len(sent) :] if changed and tells_text else ""
        kept = () if changed else tuple(self._kept)
        deltas = (*kept, *([emitter.text_delta(rest)] if rest else ()))
        return replace(outcome, chunks=(*deltas, *outcome.chunks), redact=redact)

    def _shown(self, outcome: Outcome, verdict: Verdict[OutputChunk]) -> Outcome:
        held = {"held_ms": round(self.held_seconds * 1000)} if self._mode != "stream" else {}
        last = outcome.chunks[-1]
        return _replaced(outcome, last, noted(last, verdict.entries, **held))

    def _without_text(self, outcome: Outcome, block: Entry) -> Outcome:
        replacement = block.evaluation.replacement_text or None
        if outcome.final_response is not None:
            outcome = rewritten(self._operation, outcome, replacement, block)
            last = outcome.chunks[-1]
            outcome = _replaced(outcome, last, noted(last, [block]))
        return replace(outcome, redact=True)

    async def _block(self, block: Entry, outcome: Outcome | None = None) -> Outcome:
        self._waited()
        usage = outcome.usage if outcome is not None else self._operation.tally.usage
        ended = blocked(self._operation, block, usage)
        text = (ended.final_response or {}).get("final_response_text")
        await self._report(Verdict(None, (block,), block), text)
        return ended

    async def _report(self, verdict: Verdict[OutputChunk] | Verdict[None], text: str | None) -> None:
        deciding = _changer(verdict) if verdict.changed and verdict.block is None else verdict.deciding
        await self._guards.report(
            Report(
                stream_id=self._operation.stream_id,
                action=verdict.action.value,
                guardrail_id=deciding.guard_id if deciding is not None else None,
                reason_code=deciding.evaluation.reason_code if deciding is not None else None,
                final_text=text,
            )
        )


def _delta(verdict: Verdict[OutputChunk]) -> StreamChunk | None:
    """Give the piece as it may go out; None when nothing is left of it."""
    if not verdict.value.text:
        return None
    return noted(emitter.text_delta(verdict.value.text), [entry for entry in verdict.entries if _speaks(entry)])


def _joined(pieces: list[StreamChunk]) -> list[StreamChunk]:
    """Give the same text in fewer pieces; what is told of a piece stays with it."""
    told: list[StreamChunk] = []
    plain: list[str] = []
    for piece in pieces:
        if piece.metadata or sum(map(len, plain)) >= JOINED:
            told += [emitter.text_delta("".join(plain))] if plain else []
            plain = []
        if piece.metadata:
            told.append(piece)
        else:
            plain.append(piece.fields["text_delta"])
    return [*told, emitter.text_delta("".join(plain))] if plain else told


def _speaks(entry: Entry) -> bool:
    return entry.evaluation.action is not Action.ALLOW


def _changer(verdict: Verdict[OutputChunk] | Verdict[None]) -> Entry:
    """Give the evaluation that changed the text."""
    return next(entry for entry in verdict.entries if entry.evaluation.action is Action.SANITIZE)


def _replaced(outcome: Outcome, old: StreamChunk, new: StreamChunk) -> Outcome:
    return replace(outcome, chunks=tuple(new if chunk is old else chunk for chunk in outcome.chunks))
