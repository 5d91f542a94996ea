"""The window: which stored messages are sent when a conversation is past its limit (R320 to R325, R336, R337)."""

from collections.abc import Sequence

from app.conversation.rounds import blocks
from app.domain.messages import Message


def window(messages: Sequence[Message], *, limit: int, head: int) -> list[Message]:
    """Give the first `head` messages and the newest others, `limit` in all; 0 keeps every one.

    A round that the kept messages reach into stays whole, so that there may be more than `limit`.
    """
    if limit <= 0 or len(messages) <= limit:
        return list(messages)
    kept_head = min(head, limit)
    first_kept = len(messages) - (limit - kept_head)
    return [
        message
        for block in blocks(messages)
        if block.start < kept_head or block.stop > first_kept
        for message in messages[block.start : block.stop]
    ]
