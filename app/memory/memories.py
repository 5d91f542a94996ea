"""Cognitive memory: what was said is remembered, fades, and is found again by how well it fits and how alive it is.

Traces are rows, so they outlive a restart and are the same on every replica. They go with the conversation they are of.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import structlog

from app.domain.clock import Clock
from app.domain.errors import AppError
from app.domain.memory import Memory, MemoryPlace, MemoryScope, NewMemory, Recall, Recalled
from app.domain.memory_policy import NewSummary
from app.domain.text import clean_text
from app.memory.embedding import Embedder
from app.memory.formulas import Weights, encoded, held_back
from app.memory.lessons import has_used, notes_of
from app.memory.links import linked
from app.memory.recollection import (
    alike,
    in_the_way,
    line,
    memory_of,
    moment_of,
    record_of,
    row_of,
    scored,
    told_together,
    vitality_of,
)
from app.store import passages, traces
from app.store.database import Connection, Database
from app.store.traces import Near

CANDIDATES: Final = 50
"""How many traces of the scopes each way of looking gives at most."""

LEAST_SIMILARITY: Final = 0.2
"""What fits less than this is not told: it would only be there because it is recent or strong."""

MOST_TRACES: Final = 5000
"""How many traces a scope keeps; the faintest go."""

LONGEST: Final = 2000
"""How many characters of what was said a trace keeps."""


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
            await traces.revive(connection, organization, told_together([trace.record for _, trace in told], now))
        memories = tuple(memory_of(trace.record, now, points) for points, trace in told)
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
        together: defaultdict[tuple[str, MemoryScope, str], list[str]] = defaultdict(list)
        async with self._database.transaction() as connection:
            for note, vector in zip(kept, vectors, strict=True):
                if await traces.hold(connection, note.place.conversation):
                    place = note.place
                    beside = together[place.caller.organization_id, note.scope, place.scope_id(note.scope)]
                    made.append(await self._keep(connection, note, vector, beside))
                    beside.append(made[-1].trace_id)
        return tuple(made)

    async def learn(self, place: MemoryPlace, feedback: Any, reply: str) -> None:
        """Keep the longer what the reply has used, the shorter what it has not; `feedback` is the ids of the traces."""
        organization, now = place.caller.organization_id, self._clock.now()
        async with self._database.transaction() as connection:
            told = await traces.some(connection, organization, feedback)
            learnt = [
                row_of(record, vitality.told(now) if has_used(record.content, reply) else vitality.unused())
                for record, vitality in ((record, vitality_of(record)) for record in told)
            ]
            await traces.revive(connection, organization, learnt)

    async def take_summary(self, summary: NewSummary) -> None:
        """Remember what the summary leaves beyond its conversation."""
        await self.remember(notes_of(summary))

    async def _keep(
        self, connection: Connection, note: NewMemory, vector: Sequence[float] | None, beside: Sequence[str]
    ) -> Memory:
        """Keep a note; `beside` are the traces of its scope that are made together with it."""
        place, now = note.place, self._clock.now()
        organization, scope = place.caller.organization_id, (note.scope, place.scope_id(note.scope))
        comparable = vector is not None and await passages.has_vectors(connection)
        near = await self._near(connection, organization, [scope], note.content, vector if comparable else None)
        same = next((trace.record for trace in near if trace.record.content == note.content), None)
        if same is not None:
            others = [name for name in beside if name != same.trace_id]
            again = row_of(same, vitality_of(same).told(now), linked(same.links, others))
            await traces.revive(connection, organization, [again])
            return memory_of(same, now)
        alike = [(trace.similarity, vitality_of(trace.record).at(now)) for trace in near]
        novel = not alike or max(alike)[0] < LEAST_SIMILARITY
        vitality, importance = encoded(now, moment_of(note, novel=novel), Weights.of(note.traits))
        vitality = replace(vitality, strength=vitality.strength * (1 - held_back(alike)))
        await traces.revive(connection, organization, in_the_way(near))
        record = record_of(note, vitality, now, importance=importance, links=linked({}, beside))
        model = self._embedder.name(vector) if self._embedder is not None and vector is not None else None
        await traces.add(connection, record, model=model, vector=vector)
        await traces.bound(connection, organization, scope, MOST_TRACES)
        return memory_of(record, now)

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
            trace
            for trace in near
            if (blank or trace.similarity >= LEAST_SIMILARITY)
            and (wanted.categories is None or trace.record.category in wanted.categories)
        ]
        taken: Counter[MemoryScope] = Counter()
        room, told = wanted.max_characters, []
        for points, trace in scored(fitting, now, wanted.mood):
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
