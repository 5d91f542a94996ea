"""Tool rounds: an assistant message that names calls, with the tool messages that answer them.

Limits, summaries, the token budget and repair all use this one reading of a message list; none of them may split a
round (R63, R336, R338).
"""

from collections.abc import Sequence
from typing import NamedTuple

from app.domain.messages import Message


class Block(NamedTuple):
    """Messages `start` to `stop` (exclusive) that belong together: a round, or a single message."""

    start: int
    stop: int
    is_round: bool
    complete: bool


def blocks(messages: Sequence[Message]) -> list[Block]:
    """Read a message list as blocks. A round is complete when each of its calls has an answer in it."""
    found: list[Block] = []
    place = 0
    while place < len(messages):
        stop = block_end(messages, place)
        calls = [call.id for call in messages[place].tool_calls]
        complete = not calls or _all_in(calls, [str(message.tool_call_id) for message in messages[place + 1 : stop]])
        found.append(Block(place, stop, bool(calls), complete))
        place = stop
    return found


def block_end(messages: Sequence[Message], start: int) -> int:
    """Give the place behind the block that begins at a place."""
    stop = start + 1
    if messages[start].role == "assistant" and messages[start].tool_calls:
        while stop < len(messages) and messages[stop].role == "tool":
            stop += 1
    return stop


def _all_in(calls: list[str], answers: list[str]) -> bool:
    """Tell whether each call has an answer of its own, also where two calls have one id."""
    left = list(answers)
    for call in calls:
        if call not in left:
            return False
        left.remove(call)
    return True
