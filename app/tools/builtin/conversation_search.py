"""What was said earlier in the same conversation, also where it is past what the model is told."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from app.domain.tools import ToolSpec
from app.tools.base import ToolContext, ToolError

Search = Callable[[ToolContext, Sequence[str], int], Awaitable[Sequence[Mapping[str, Any]]]]
"""Gives the newest messages that hold all the words, as `{position, role, text, time}`."""

MOST_WORDS: Final = 8
MOST_RESULTS: Final = 20
LONGEST_TEXT: Final = 600


class ConversationSearch:
    """Searches the caller's own conversation, and no other."""

    spec = ToolSpec(
        name="search_conversation",
        description=(
            "Finds earlier messages of this conversation that hold all the given words. Use it when the user refers "
            "to something that you can't see."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "query": {"type": "string", "minLength": 1, "description": "A few words; each must occur."},
                "limit": {"type": "integer", "minimum": 1, "maximum": MOST_RESULTS, "description": "10 if left out."},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    )

    def __init__(self, search: Search) -> None:
        """Keep what reads the messages."""
        self._search = search

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Give what was found, the newest first; long texts are cut around the first word."""
        words = str(arguments["query"]).split()[:MOST_WORDS]
        if not words:
            message = "The query has no words; give at least one."
            raise ToolError(message)
        found = await self._search(context, words, int(arguments.get("limit") or 10))
        return {"messages": [{**entry, "text": _around(str(entry["text"]), words[0])} for entry in found]}


def _around(text: str, word: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    place = max(0, text.lower().find(word.lower()) - LONGEST_TEXT // 2)
    end = place + LONGEST_TEXT
    return ("…" if place else "") + text[place:end] + ("…" if end < len(text) else "")
