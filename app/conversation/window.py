"""The window: what is told of a conversation past its limit (R320 to R325, R330 to R332, R336, R337)."""

from collections.abc import Iterator, Sequence

from app.conversation.rounds import block_end
from app.domain.messages import Message


def window(messages: Sequence[Message], *, limit: int, head: int) -> list[Message]:
    """Give the first `head` messages, summaries, and the newest others: `limit` in all; 0 keeps every one.

    Kept of the summaries are the one right behind the head and the last one; where there is room for one beside the
    newest message, the last. A round that any of these reach into stays whole. Then, and where the limit has no room
    for head, last summary and newest message, there are more than `limit`. Twice is the same as once.
    """
    if limit <= 0 or len(messages) <= limit:
        return list(messages)
    behind_head = head_stop(messages, head)
    chosen = _summaries(messages, behind_head, room=limit - head - 1)
    newest = max(1, limit - head - len(chosen))
    for place in range(len(messages) - 1, behind_head - 1, -1):
        if newest == 0:
            break
        if place not in chosen:
            chosen.add(place)
            newest -= 1
    return [*messages[:behind_head], *_with_rounds(messages, behind_head, chosen)]


def _with_rounds(messages: Sequence[Message], place: int, chosen: set[int]) -> Iterator[Message]:
    """Give the chosen messages from a place on, at which a block begins; a round that is chosen in part is whole."""
    while place < len(messages):
        stop = block_end(messages, place)
        if place in chosen or not chosen.isdisjoint(range(place + 1, stop)):
            yield from messages[place:stop]
        place = stop


def head_stop(messages: Sequence[Message], head: int) -> int:
    """Give the place behind the first `head` messages; a round that they reach into is whole in front of it (R64)."""
    place = 0
    while place < min(head, len(messages)):
        place = block_end(messages, place)
    return place


def _summaries(messages: Sequence[Message], behind_head: int, *, room: int) -> set[int]:
    """Give the places of the summaries that a drop keeps."""
    places = [place for place in range(behind_head, len(messages)) if messages[place].role == "summary"]
    if not places:
        return set()
    first_stands = places[0] == behind_head
    both = 2
    return {places[0], places[-1]} if first_stands and room >= both else {places[-1]}
