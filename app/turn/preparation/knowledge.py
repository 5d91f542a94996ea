"""What documents and memory say of a turn's input, for its prompt (R256, R257, R264).

A persona that uses neither costs nothing. A memory that can't be asked is left out; documents are waited for.
"""

from dataclasses import replace

import structlog

from app.domain.documents import FoundChunk, Lookup
from app.domain.errors import AppError
from app.domain.memory import MemoryPlace, Recall
from app.domain.messages import text_of
from app.domain.persona import Persona
from app.memory.formulas import MOODS
from app.memory.recollection import line
from app.turn.preparation.draft import PhaseServices, TurnDraft

MOST_CHARACTERS = 4000
"""How much text of documents a turn is told at most."""

MOST_REMEMBERED = 6400
"""How much of what was remembered: about 1600 tokens."""


async def gather(draft: TurnDraft, services: PhaseServices) -> None:
    """Fill the slots for what was remembered and retrieved, and name the sources."""
    persona, _, new = draft.chosen()
    text = text_of(new.message.content)
    if persona.retrieval.is_due(text):
        draft.sources = await _retrieved(draft, services, persona, text)
        entries = tuple(map(_entry, draft.sources))
        draft.slots = replace(draft.slots, retrieved=(*draft.slots.retrieved, *entries))
        draft.routing["retrieval"] = {"passages": len(entries)}
    allowed = draft.memory_policy is None or draft.memory_policy.enabled
    if persona.memory.enabled and allowed and text.strip() and services.policy.persistence:
        before = "\n".join(draft.slots.memory)
        remembered = [one for one in await _remembered(draft, services, persona, text) if one not in before]
        draft.slots = replace(draft.slots, memory=(*draft.slots.memory, *remembered))
        draft.routing["memory"] = {"told": len(remembered)}


async def _retrieved(draft: TurnDraft, services: PhaseServices, persona: Persona, text: str) -> tuple[FoundChunk, ...]:
    wanted = persona.retrieval
    found = await services.library.search(
        Lookup(
            caller=draft.turn.caller,
            query=text,
            conversation=draft.turn.conversation,
            collections=wanted.collections,
            top_k=wanted.top_k,
            strategy=wanted.strategy,
            mmr_lambda=wanted.mmr_lambda,
            metadata=wanted.metadata,
        )
    )
    told: list[FoundChunk] = []
    room = MOST_CHARACTERS
    for chunk in found:
        room -= len(_entry(chunk))
        if room < 0 and told:
            break
        told.append(chunk)
    return tuple(told)


async def _remembered(draft: TurnDraft, services: PhaseServices, persona: Persona, text: str) -> tuple[str, ...]:
    place = MemoryPlace(draft.turn.caller, draft.turn.conversation_id, persona.id)
    mood, _ = MOODS.get(draft.session.mood, (0.0, 0.0))
    wanted = Recall(
        place, text, (persona.memory.scope,), top_k=persona.memory.top_k, max_characters=MOST_REMEMBERED, mood=mood
    )
    try:
        found = await services.memories.recall(wanted)
    except AppError as error:
        structlog.get_logger(__name__).warning("memory.not_recalled", code=error.code, turn_id=draft.turn_id)
        return ()
    return tuple(map(line, found.memories))


def _entry(chunk: FoundChunk) -> str:
    """Give a passage with the id that cites it."""
    name = " — ".join(part for part in (chunk.title, chunk.heading) if part)
    return f"[{chunk.chunk_id}] {name}\n{chunk.content}" if name else f"[{chunk.chunk_id}]\n{chunk.content}"
