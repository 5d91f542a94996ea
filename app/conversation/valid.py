"""Makes any message list one that strict providers take: pure, deterministic, and twice is the same as once.

Each call is answered right after the message that names it, in the order of the calls; a lost result becomes a neutral
error result, a result without its call is left out, and the first message is a user's or a summary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.conversation.rounds import blocks
from app.domain.messages import NEVER_SENT, Message

LOST_RESULT: Final = "The result of this call was lost."


@dataclass(frozen=True, slots=True)
class Repaired:
    """A valid list, and how many repairs it took: any at all means that something upstream was wrong."""

    messages: tuple[Message, ...]
    repairs: int


def valid(messages: Sequence[Message]) -> Repaired:
    """Give the list that may be sent. The system message is not part of it."""
    sendable = [message for message in messages if message.role not in NEVER_SENT]
    kept: list[Message] = []
    repairs = 0
    for block in blocks(sendable):
        first = sendable[block.start]
        if block.is_round:
            answers, faults = _answers(first, sendable[block.start + 1 : block.stop])
            kept += [first, *answers]
            repairs += faults
        elif first.role == "tool" or _says_nothing(first):
            repairs += 1
        else:
            kept.append(first)
    start = next((i for i, message in enumerate(kept) if message.role in {"user", "summary"}), len(kept))
    return Repaired(tuple(kept[start:]), repairs)


def _answers(first: Message, given: Sequence[Message]) -> tuple[list[Message], int]:
    by_call: dict[str | None, Message] = {}
    for message in given:
        by_call.setdefault(message.tool_call_id, message)
    answers = [
        by_call.get(call.id) or Message("tool", LOST_RESULT, tool_call_id=call.id, name=call.name, is_error=True)
        for call in first.tool_calls
    ]
    # Results are stored as the host sent them, so another order is no fault.
    whole = sorted(str(message.tool_call_id) for message in given) == sorted(call.id for call in first.tool_calls)
    return answers, 0 if whole else 1


def _says_nothing(message: Message) -> bool:
    return message.role == "assistant" and not message.content and not message.tool_calls
