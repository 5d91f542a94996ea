"""Cognitive memory: what was said is remembered, fades, and is found again by how well it fits and how alive it is.

Traces are rows, so they outlive a restart and are the same on every replica. They go with the conversation they are of.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import structlog

from app.domain.clock import Clock
from app.domain.errors import AppError
from app.domain.ids import fresh
from app.domain.memory import Memory, MemoryPlace, MemoryScope, NewMemory, Recall, Recalled
from app.domain.memory_policy import NewSummary
from app.domain.text import clean_text
from app.memory.embedding import Embedder
from app.memory.formulas import Vitality, after_newer, encoded, held_back, score
from app.memory.lessons import has_used, notes_of
from app.store import passages, traces
from app.store.database import Connection, Database
from app.store.traces import Near, TraceRecord

CANDIDATES: Final = 50
"""How many traces of the scopes each way of looking gives at most."""

LEAST_SIMILARITY: Final = 0.2
"""What fits less than this is not told: it would only be there because it is recent or strong."""

ENOUGH_WORDS: Final = 5
"""How many words in common make a trace fit as well as can be."""

REVIVED: Final = 5
"""How many of the traces that are told live longer for it."""

MOST_TRACES: Final = 5000
"""How many traces a scope keeps; the faintest go."""

LONGEST: Final = 2000
"""How many characters of what was said a trace keeps."""

CONFIDENCE: Final = {"user_statement": 1.0, "tool": 1.0, "agent_inference": 0.8, "memory_summary": 0.75}


class Memories:
    """All that is remembered; fulfils `LongTermMemory`, `LearnsFromReplies` and `TakesSummaries`."""

    def __init__(self, database: Database, clock: Clock, embedder: Embedder | None) -> None:
        """Without `embedder`, or in a database without pgvector, traces are found by their words."""
        self._database = database
        self._clock = clock
        self._embedder = embedder
        self._log = structlog.get_logger(__name__)

    async def recall(self, wanted: Recall) -> Recalled:
        """See `LongTermMemory.recall`. A query without words gives what was remembered last."""
        place, query = wanted.place, clean_text(" ".join(wanted.query.split()))[:LONGEST]
        scopes = [(scope, place.scope_id(scope)) for scope in dict.fromkeys(wanted.scopes)]
        organization = place.caller.organization_id
        nothing = wanted.categories is not None and not wanted.categories
        if not scopes or wanted.top_k < 1 or nothing:
            return Recalled()
        async with self._database.transaction() as connection:
            models = await traces.models(connection, organization, scopes)
            comparable = any(models) and self._embedder is not None and await passages.has_vectors(connection)
        if not models:
            return Recalled()
        vector = (await self._vectors([query]))[0] if comparable and query else None
        async with self._database.transaction() as connection:
            near = await self._near(connection, organization, scopes, query, vector)
            told = self._told(near, wanted)
            now = self._clock.now()
            revived = [_row(trace.record, _vitality(trace.record).told(now)) for _, trace in told[:REVIVED]]
            await traces.revive(connection, organization, revived)
        memories = tuple(_memory(trace.record, points) for points, trace in told)
        told_of = {"candidates": len(near), "told": len(memories)}
        ids = [memory.trace_id for memory in memories]
        return Recalled(memories, "\n".join(map(line, memories)), told_of, ids or None)

    async def remember(self, notes: Sequence[NewMemory]) -> tuple[Memory, ...]:
        """See `LongTermMemory.remember`. What is remembered already, word for word, is only revived."""
        kept = [replace(note, content=clean_text(note.content.strip())[:LONGEST]) for note in notes]
        kept = [note for note in kept if note.content]
        if not kept:
            return ()
        vectors: Sequence[Sequence[float] | None] = [None] * len(kept)
        if self._embedder is not None:
            vectors = await self._vectors([note.content for note in kept])
        made: list[Memory] = []
        async with self._database.transaction() as connection:
            for note, vector in zip(kept, vectors, strict=True):
                if await traces.hold(connection, note.place.conversation):
                    made.append(await self._keep(connection, note, vector))
        return tuple(made)

    async def learn(self, place: MemoryPlace, feedback: Any, reply: str) -> None:
        """Keep the longer what the reply has used; `feedback` is the ids of what was told."""
        organization, now = place.caller.organization_id, self._clock.now()
        async with self._database.transaction() as connection:
            told = await traces.some(connection, organization, feedback)
            used = [_row(record, _vitality(record).told(now)) for record in told if has_used(record.content, reply)]
            await traces.revive(connection, organization, used)

    async def take_summary(self, summary: NewSummary) -> None:
        """Remember what the summary leaves beyond its conversation."""
        await self.remember(notes_of(summary))

    async def _keep(self, connection: Connection, note: NewMemory, vector: Sequence[float] | None) -> Memory:
        place, now = note.place, self._clock.now()
        organization, scope = place.caller.organization_id, (note.scope, place.scope_id(note.scope))
        comparable = vector is not None and await passages.has_vectors(connection)
        near = await self._near(connection, organization, [scope], note.content, vector if comparable else None)
        same = next((trace.record for trace in near if trace.record.content == note.content), None)
        if same is not None:
            await traces.revive(connection, organization, [_row(same, _vitality(same).told(now))])
            return _memory(same)
        alike = [(trace.similarity, _vitality(trace.record).at(now)) for trace in near]
        vitality = encoded(
            now,
            valence=note.valence,
            arousal=note.arousal,
            sentiment=note.sentiment,
            novel=not alike or max(alike)[0] < LEAST_SIMILARITY,
            explicit=note.explicit,
        )
        vitality = replace(vitality, strength=vitality.strength * (1 - held_back(alike)))
        faded = [
            _row(trace.record, replace(_vitality(trace.record), strength=after_newer(trace.record.strength, similar)))
            for trace in near
            if (similar := trace.similarity) > LEAST_SIMILARITY
        ]
        await traces.revive(connection, organization, faded)
        record = _record(note, vitality, now)
        model = self._embedder.name(vector) if self._embedder is not None and vector is not None else None
        await traces.add(connection, record, model=model, vector=vector)
        await traces.bound(connection, organization, scope, MOST_TRACES)
        return _memory(record)

    async def _near(
        self,
        connection: Connection,
        organization: str,
        scopes: traces.Scopes,
        query: str,
        vector: Sequence[float] | None,
    ) -> list[Near]:
        """Give the traces that may fit, each with its similarity: by meaning where that is known, else by words."""
        words = await traces.words_of(connection, query)
        if not words and vector is None:
            return await traces.newest(connection, organization, scopes, CANDIDATES)
        found: dict[str, Near] = {}
        if words:
            by_words = await traces.by_words(connection, organization, scopes, words, CANDIDATES)
            found = {trace.record.trace_id: trace for trace in alike(by_words, words)}
        if vector is not None and self._embedder is not None:
            model = self._embedder.name(vector)
            by_meaning = await traces.by_meaning(
                connection, organization, scopes, vector, model=model, limit=CANDIDATES
            )
            for trace in by_meaning:
                before = found.get(trace.record.trace_id)
                if before is None or before.similarity < trace.similarity:
                    found[trace.record.trace_id] = trace
        return list(found.values())

    def _told(self, near: Iterable[Near], wanted: Recall) -> list[tuple[float, Near]]:
        """Give what is told, the best first: so many of each scope, and no more characters than there may be."""
        now, blank = self._clock.now(), not wanted.query.strip()
        fitting = [
            (_score(trace, now, wanted.mood), trace)
            for trace in near
            if (blank or trace.similarity >= LEAST_SIMILARITY)
            and (wanted.categories is None or trace.record.category in wanted.categories)
        ]
        taken: Counter[MemoryScope] = Counter()
        room, told = wanted.max_characters, []
        for points, trace in sorted(fitting, key=lambda pair: (-pair[0], pair[1].record.trace_id)):
            size = len(trace.record.content) + 3
            if taken[trace.record.scope] >= wanted.top_k or size > room:
                continue
            taken[trace.record.scope] += 1
            room -= size
            told.append((points, trace))
        return told

    async def _vectors(self, texts: Sequence[str]) -> list[Sequence[float] | None]:
        try:
            return list(await self._embedder.vectors(texts)) if self._embedder is not None else [None] * len(texts)
        except AppError as error:
            # What can't be embedded is found by its words.
            self._log.warning("memory.not_embedded", code=error.code)
            return [None] * len(texts)


def alike(near: Sequence[Near], words: Sequence[str]) -> list[Near]:
    """Give the traces with the share of the words that they hold; of many words a few are enough."""
    enough = min(len(words), ENOUGH_WORDS)
    return [replace(trace, similarity=min(1.0, len(trace.held.intersection(words)) / enough)) for trace in near]


def line(memory: Memory) -> str:
    """Give a memory as one line of a prompt."""
    said = {"user_statement": "The user said", "agent_inference": "The answer was"}.get(memory.source, "It was noted")
    return f"- {said}: {' '.join(memory.content.split())}"


def _score(trace: Near, now: datetime, mood: float) -> float:
    record = trace.record
    return score(
        trace.similarity,
        _vitality(record),
        now,
        created_at=record.created_at,
        valence=record.valence,
        mood=mood,
        confidence=record.confidence,
    )


def _vitality(record: TraceRecord) -> Vitality:
    return Vitality(record.strength, record.stability, record.intensity, record.accessed_at, record.recalled)


def _row(record: TraceRecord, vitality: Vitality) -> Mapping[str, Any]:
    return {
        "trace_id": record.trace_id,
        "strength": vitality.strength,
        "stability": vitality.stability,
        "intensity": vitality.intensity,
        "recalled": vitality.recalled,
        "accessed_at": vitality.accessed_at,
    }


def _record(note: NewMemory, vitality: Vitality, now: datetime) -> TraceRecord:
    place: MemoryPlace = note.place
    return TraceRecord(
        organization_id=place.caller.organization_id,
        trace_id=fresh("mem"),
        user_id=place.caller.user_id,
        scope=note.scope,
        scope_id=place.scope_id(note.scope),
        conversation=place.conversation,
        conversation_id=place.conversation_id,
        persona_id=place.persona_id,
        type=note.type,
        source=note.source,
        category=note.category,
        content=note.content,
        valence=0.7 * note.sentiment + 0.3 * note.valence,
        confidence=CONFIDENCE.get(note.source, 0.8),
        strength=vitality.strength,
        stability=vitality.stability,
        intensity=vitality.intensity,
        recalled=vitality.recalled,
        created_at=now,
        accessed_at=vitality.accessed_at,
    )


def _memory(record: TraceRecord, points: float | None = None) -> Memory:
    return Memory(record.trace_id, record.scope, record.type, record.content, record.category, record.source, points)
