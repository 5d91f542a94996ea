"""Help from documents when a tool has failed: looked up before the model goes on, and told with the failed result.

It costs nothing unless the persona names tools for it (`retrieval.on_tool_failure`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from app.conversation.tokens import message_tokens, messages_tokens
from app.domain.documents import FoundChunk
from app.domain.messages import CONTEXT_CHARACTERS, Message, text_of
from app.prompts.engine import as_data
from app.turn.gmi.base import GmiTurnInput

LONGEST_QUERY: Final = 2000


class ToolHelp:
    """The sources of an operation. They grow at most once, by what is found for the first tool that fails."""

    def __init__(self, sources: tuple[Mapping[str, Any], ...] = ()) -> None:
        """Begin with the sources that the turn has already."""
        self.sources = sources
        self._looked = False

    async def found(self, turn: GmiTurnInput, messages: list[Message]) -> bool:
        """Look up what helps, if a tool of the last round has failed; tell whether there are new sources now.

        What the turn was not told yet stands behind the failed result, which is data as well, as far as there is room.
        """
        place = None if self._looked or turn.look_up is None else _failed(turn, messages)
        if place is None or turn.look_up is None:
            return False
        self._looked = True
        failed = messages[place]
        known = {source.get("id") for source in self.sources}
        found = await turn.look_up(_query(messages, failed))
        passages = [passage for passage in found if passage.chunk_id not in known]
        told = _fitting(turn, messages, passages)
        about = {"tool": failed.name, "found": len(passages), "told": len(told)}
        text = f"Documents were looked in, since the tool {failed.name} has failed."
        turn.session.trace.note("rag_query_result", text, related_id=failed.tool_call_id, details=about)
        if not told:
            return False
        framed = as_data("retrieved", [passage.told for passage in told])
        messages[place] = replace(failed, content=f"{text_of(failed.content)}\n\n{framed}")
        self.sources += tuple(passage.to_json() for passage in told)
        return True


def _failed(turn: GmiTurnInput, messages: Sequence[Message]) -> int | None:
    """Give the place of the first failed result of the last round that the persona wants help for.

    A tool that a model has made up can't fail.
    """
    known = {tool.name for tool in (*turn.runtime_tools, *turn.host_tools)}
    found = None
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.role != "tool":
            break
        name = message.name or ""
        if message.is_error and name in known and turn.persona.retrieval.is_due_after(name):
            found = place
    return found


def _query(messages: Sequence[Message], failed: Message) -> str:
    """Give what is looked for: what the user wants, and what went wrong with which tool."""
    asked = next((message for message in reversed(messages) if message.role == "user"), Message("user", ""))
    said = text_of(asked.content)[(asked.metadata or {}).get(CONTEXT_CHARACTERS, 0) :].strip()
    return f"{said[:LONGEST_QUERY]}\n{failed.name} {text_of(failed.content)[:LONGEST_QUERY]}"


def _fitting(turn: GmiTurnInput, messages: Sequence[Message], passages: Sequence[FoundChunk]) -> tuple[FoundChunk, ...]:
    """Give the passages that there is room for: a turn is not to fail by what should help it."""
    if turn.room is None:
        return tuple(passages)
    counter = turn.room.counter
    spoken = [message for message in messages if message.role != "system"]
    left = turn.room.budget - messages_tokens(spoken, counter)
    told: list[FoundChunk] = []
    for passage in passages:
        left -= message_tokens(Message("user", passage.told), counter)
        if left < 0:
            break
        told.append(passage)
    return tuple(told)
