"""What memory takes from turns: what of a summary is worth remembering, and which memories a reply has used."""

import re
from collections.abc import Mapping
from typing import Any, Final

from app.domain.memory import MemoryScope, NewMemory
from app.domain.memory_policy import CATEGORIES, NewSummary

MOST_NOTES: Final = 20
"""How many entries of a summary become memories of their own, in each scope."""

USED: Final = 0.3
"""The share of a memory's words that a reply must have for the memory to have been of use."""

_WORDS: Final = re.compile(r"\w{4,}")


def notes_of(summary: NewSummary) -> list[NewMemory]:
    """Give what a summary leaves: its entries by category, or its text where it has none or they are not wanted.

    The conversation itself is told its summary anyway, so the scopes are those beyond it; an organization's only where
    the policy shares with it.
    """
    policy = summary.policy
    scopes = [scope for scope in policy.beyond if scope != "organization" or policy.share_with_organization]
    entries = [
        (category, text)
        for category in CATEGORIES
        if policy.allowed_categories is None or category in policy.allowed_categories
        for text in _texts((summary.memory or {}).get(category))
    ]
    if policy.store_atomic_docs and entries:
        return [_note(summary, scope, *entry) for scope in scopes for entry in entries[:MOST_NOTES]]
    return [_note(summary, scope, None, summary.text) for scope in scopes if policy.allowed_categories is None]


def has_used(content: str, reply: str) -> bool:
    """Tell whether enough of a memory's words, of four letters or more, are in a reply."""
    words = set(_WORDS.findall(content.casefold()))
    return bool(words) and len(words.intersection(_WORDS.findall(reply.casefold()))) >= USED * len(words)


def _note(summary: NewSummary, scope: MemoryScope, category: str | None, text: str) -> NewMemory:
    return NewMemory(summary.place, scope, text, "semantic", "memory_summary", category, traits=summary.traits)


def _texts(entries: Any) -> list[str]:
    """Give the entries of a category as texts: a model writes them as texts, or as objects with one."""
    found = entries if isinstance(entries, list) else [entries]
    texts = [entry.get("text") if isinstance(entry, Mapping) else entry for entry in found]
    return [text.strip() for text in texts if isinstance(text, str) and text.strip()]
