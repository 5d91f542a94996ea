"""What documents and memory say of a turn's input, for its prompt (R256, R257, R264).

A persona that uses neither costs nothing. A memory that can't be asked is left out; documents are waited for.
"""

from dataclasses import replace
from uuid import UUID

import structlog

from app.domain.documents import FoundChunk, Lookup
from app.domain.memory import MemoryPlace, MemoryScope, Recall
from app.domain.messages import text_of
from app.domain.persona import Persona, RetrievalUse
from app.domain.turn import Caller
from app.memory.formulas import MOODS
from app.memory.library import Library
from app.memory.recollection import line
from app.turn.preparation.draft import PhaseServices, TurnDraft

MOST_CHARACTERS = 4000
"""How much text of documents a turn is told at a time."""

INTENTS = "intents"
"""The custom flag by which a host tells what it takes the user to want: a name, or a list of names."""

MOST_REMEMBERED = 6400
"""How much of what was remembered: about 1600 tokens."""


async def gather(draft: TurnDraft, services: PhaseServices) -> None:
    """Fill the slots for what was remembered and retrieved, and name the sources."""
    persona, _, new = draft.chosen()
    text = text_of(new.message.content)
    if persona.retrieval.is_due(text, _intents(draft) if persona.retrieval.on_intents else ()):
        place = draft.turn.caller, draft.conversation
        draft.sources = await passages_for(services.library, persona.retrieval, *place, text)
        entries = tuple(source.told for source in draft.sources)
        draft.slots = replace(draft.slots, retrieved=(*draft.slots.retrieved, *entries))
        draft.routing["retrieval"] = {"passages": len(entries)}
    allowed = draft.memory_policy is None or draft.memory_policy.enabled
    if persona.memory.enabled and allowed and text.strip() and services.policy.persistence:
        before = "\n".join(draft.slots.memory)
        remembered = [one for one in await _remembered(draft, services, persona, text) if one not in before]
        draft.slots = replace(draft.slots, memory=(*draft.slots.memory, *remembered))
        draft.routing["memory"] = {"told": len(remembered)}


def _intents(draft: TurnDraft) -> frozenset[str]:
    """Give what the host says that the user wants, and the events that were noticed of the input."""
    told = draft.turn.options.custom_flags.get(INTENTS)
    names = [told] if isinstance(told, str) else told if isinstance(told, list) else []
    return draft.signals | {name for name in names if isinstance(name, str)}


async def passages_for(
    library: Library, wanted: RetrievalUse, caller: Caller, conversation: UUID, text: str
) -> tuple[FoundChunk, ...]:
    """Give the passages that fit a text best, as many of them as may be told at a time."""
    found = await library.search(
        Lookup(
            caller=caller,
            query=text,
            conversation=conversation,
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
        room -= len(chunk.told)
        if room < 0 and told:
            break
        told.append(chunk)
    return tuple(told)


async def _remembered(draft: TurnDraft, services: PhaseServices, persona: Persona, text: str) -> tuple[str, ...]:
    scopes: tuple[MemoryScope, ...] = (persona.memory.scope, *persona.memory.also_recalls)
    place = MemoryPlace(draft.turn.caller, draft.turn.conversation_id, persona.id)
    mood, _ = MOODS.get(draft.session.mood, (0.0, 0.0))
    wanted = Recall(place, text, scopes, top_k=persona.memory.top_k, max_characters=MOST_REMEMBERED, mood=mood)
    try:
        found = await services.memories.recall(wanted)
    except Exception as error:  # noqa: BLE001 - a turn without its memories is better than none
        name = type(error).__name__
        structlog.get_logger(__name__).warning("memory.not_recalled", error=name, turn_id=draft.turn_id)
        draft.warnings = (*draft.warnings, f"What is remembered could not be recalled: {name}.")
        return ()
    if found.feedback is not None:
        draft.recalled = (*draft.recalled, found)
    return tuple(map(line, found.memories))
