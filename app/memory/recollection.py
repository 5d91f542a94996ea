"""Traces and what is made of them: a note becomes one, the best are chosen, and each is told as a line of a prompt."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from app.domain.ids import fresh
from app.domain.memory import Memory, MemoryPlace, NewMemory
from app.memory.formulas import Moment, Vitality, after_newer, felt, overlap, score
from app.memory.links import activation, linked
from app.memory.trust import CONFIDENCE, DEFAULT_CONFIDENCE, is_unverified
from app.store.traces import Near, TraceRecord

ENOUGH_WORDS: Final = 5
"""How many words in common make a trace fit as well as can be."""

REVIVED: Final = 5
"""How many of the traces that are told live longer for it."""

SEEDS: Final = 5
"""How many of the traces that fit best lend what they lead to some of their score."""

_STEPS: Final = re.compile(r"^\s*\d+[.)]\s", re.MULTILINE)
_FEWEST_STEPS: Final = 2


def alike(near: Sequence[Near], words: Sequence[str]) -> list[Near]:
    """Give the traces with the share of the words that they hold; of many words a few are enough."""
    enough = min(len(words), ENOUGH_WORDS)
    return [replace(trace, similarity=min(1.0, len(trace.held.intersection(words)) / enough)) for trace in near]


def scored(fitting: Iterable[Near], now: datetime, mood: float) -> list[tuple[float, Near]]:
    """Give traces with their scores, the best first: those that fit best lend some of theirs to what they lead to."""
    ranked = _ranked([(_score(trace, now, mood, 0.0), trace) for trace in fitting])
    reached = activation(
        [trace.record.trace_id for _, trace in ranked[:SEEDS]],
        {trace.record.trace_id: trace.record.links for _, trace in ranked},
    )
    if not reached:
        return ranked
    return _ranked([(_score(trace, now, mood, reached.get(trace.record.trace_id, 0.0)), trace) for _, trace in ranked])


def line(memory: Memory) -> str:
    """Give a memory as one line of a prompt."""
    said = {"user_statement": "The user said", "agent_inference": "The answer was"}.get(memory.source, "It was noted")
    doubt = " (not verified)" if memory.unverified else ""
    return f"- {said}{doubt}: {' '.join(memory.content.split())}"


def _ranked(found: list[tuple[float, Near]]) -> list[tuple[float, Near]]:
    return sorted(found, key=lambda pair: (-pair[0], pair[1].record.trace_id))


def told_together(told: Sequence[TraceRecord], now: datetime) -> list[Mapping[str, Any]]:
    """Give the rows of the first traces that are told: they live longer, and lead to each other the more."""
    first = told[:REVIVED]
    names = [record.trace_id for record in first]
    return [
        row_of(
            record,
            vitality_of(record).told(now),
            linked(record.links, [name for name in names if name != record.trace_id]),
        )
        for record in first
    ]


def in_the_way(near: Iterable[Near]) -> list[Mapping[str, Any]]:
    """Give the rows of the traces that lose strength to a new one that is like them."""
    return [
        row_of(one.record, replace(vitality_of(one.record), strength=after_newer(one.record.strength, one.similarity)))
        for one in near
        if overlap(one.similarity) > 0
    ]


def moment_of(note: NewMemory, *, novel: bool) -> Moment:
    """Give what is told of a memory when it is made."""
    steps = len(_STEPS.findall(note.content)) >= _FEWEST_STEPS
    return Moment(note.valence, note.arousal, note.sentiment, novel, steps, note.explicit)


def _score(trace: Near, now: datetime, mood: float, reached: float) -> float:
    record = trace.record
    return score(
        trace.similarity,
        vitality_of(record),
        now,
        created_at=record.created_at,
        valence=record.valence,
        mood=mood,
        confidence=record.confidence,
        activation=reached,
    )


def vitality_of(record: TraceRecord) -> Vitality:
    """Give how alive a trace is."""
    return Vitality(record.strength, record.stability, record.intensity, record.accessed_at, record.recalled)


def row_of(record: TraceRecord, vitality: Vitality, links: Mapping[str, float] | None = None) -> Mapping[str, Any]:
    """Give what is stored of a trace that was told, or is in another's way."""
    return {
        "trace_id": record.trace_id,
        "strength": vitality.strength,
        "stability": vitality.stability,
        "intensity": vitality.intensity,
        "recalled": vitality.recalled,
        "accessed_at": vitality.accessed_at,
        "links": dict(record.links if links is None else links),
    }


def record_of(
    note: NewMemory, vitality: Vitality, now: datetime, *, importance: float, links: Mapping[str, float]
) -> TraceRecord:
    """Give the trace that a note becomes."""
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
        valence=felt(note.sentiment, note.valence),
        confidence=CONFIDENCE.get(note.source, DEFAULT_CONFIDENCE),
        strength=vitality.strength,
        stability=vitality.stability,
        intensity=vitality.intensity,
        importance=importance,
        links=links,
        recalled=vitality.recalled,
        created_at=now,
        accessed_at=vitality.accessed_at,
    )


def memory_of(record: TraceRecord, now: datetime, points: float | None = None) -> Memory:
    """Give a trace as others see it."""
    return Memory(
        trace_id=record.trace_id,
        scope=record.scope,
        type=record.type,
        content=record.content,
        category=record.category,
        source=record.source,
        score=points,
        unverified=is_unverified(record.source, record.created_at, now),
    )
