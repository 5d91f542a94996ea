"""Makes any message list one that strict model servers take: pure, deterministic, and twice is the same as once.

Each call is answered right after the message that names it, in the order of the calls, under an id that no other call
of the list has. A lost result becomes a neutral error; a result without its call (also one that comes too late), a
second result and a message that says nothing are left out. A summary is told as a user's message, since what people
said must not come back with a system's authority. The list begins with a user's message, behind system messages.

A round at the very end that still waits for answers is live and stays as it is. All this depends on what comes before
a message and not on what follows it, so a longer history begins with the shorter one, and prompt caches keep hitting.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from app.conversation.rounds import blocks
from app.domain.frozen import dataclass
from app.domain.messages import NEVER_SENT, Content, Message, ToolCall

LOST_RESULT: Final = "The result of this call was lost."
OPENING: Final = Message("user", "(The messages begin here.)", metadata={"source": "opening"})
"""Stands in front of a list that would otherwise begin with somebody else than the user."""

SUMMARY_SOURCE: Final = "summary"
"""The `source` in the metadata of a message that is a summary."""

_SAID: Final = frozenset({"system", "user", "assistant"})
_PARTS: Final = frozenset({"image", "image_url", "audio", "file"})


@dataclass(frozen=True, slots=True)
class Repaired:
    """A valid list, and how many faults of each kind it took: any at all means that something upstream was wrong."""

    messages: tuple[Message, ...]
    faults: Mapping[str, int]

    @property
    def repairs(self) -> int:
        """How many faults there were in all."""
        return sum(self.faults.values())


def valid(messages: Sequence[Message]) -> Repaired:
    """Give the list that may be sent; errors and thoughts are never part of it."""
    if all(map(_is_said, messages)):
        return Repaired(_opened(messages), {})
    sendable = [message for message in messages if message.role not in NEVER_SENT]
    kept: list[Message] = []
    faults: Counter[str] = Counter()
    used: set[str] = set()
    found = blocks(sendable)
    for block in found:
        first, answers = sendable[block.start], sendable[block.start + 1 : block.stop]
        if block.is_round:
            live = block is found[-1] and not block.complete
            kept += [first, *answers] if live else _round(first, answers, used, faults)
        elif first.role == "tool":
            faults["orphan_result"] += 1
        elif _says_nothing(first):
            faults["empty_message"] += 1
        else:
            kept.append(_as_user(first) if first.role == "summary" else first)
    return Repaired(_opened(kept), dict(faults))


def _is_said(message: Message) -> bool:
    """Tell whether there is nothing to mend, whatever else is in the list: most lists are of such messages alone."""
    return message.role in _SAID and not message.tool_calls and says_something(message.content)


def _as_user(summary: Message) -> Message:
    return replace(summary, role="user", metadata={**(summary.metadata or {}), "source": SUMMARY_SOURCE})


def _opened(kept: Sequence[Message]) -> tuple[Message, ...]:
    place = next((place for place, message in enumerate(kept) if message.role != "system"), len(kept))
    if place == len(kept) or kept[place].role == "user":
        return tuple(kept)
    return (*kept[:place], OPENING, *kept[place:])


def _round(first: Message, given: Sequence[Message], used: set[str], faults: Counter[str]) -> list[Message]:
    waiting: dict[str, list[Message]] = {}
    for message in given:
        waiting.setdefault(str(message.tool_call_id), []).append(message)
    calls: list[ToolCall] = []
    answers: list[Message] = []
    for call in first.tool_calls:
        name = _unused(call.id, used)
        if name != call.id:
            faults["repeated_call_id"] += 1
        queue = waiting.get(call.id)
        if queue:
            answer = queue.pop(0)
        else:
            faults["lost_result"] += 1
            answer = Message("tool", LOST_RESULT, tool_call_id=call.id, name=call.name, is_error=True)
        calls.append(call if name == call.id else replace(call, id=name))
        answers.append(answer if name == answer.tool_call_id else replace(answer, tool_call_id=name))
    surplus = sum(map(len, waiting.values()))
    if surplus:
        faults["surplus_result"] += surplus
    renamed = tuple(calls)
    return [first if renamed == first.tool_calls else replace(first, tool_calls=renamed), *answers]


def _unused(name: str, used: set[str]) -> str:
    """Give the id itself, or one made of it that the list does not have yet."""
    found, number = name, 2
    while found in used:
        found, number = f"{name}_{number}", number + 1
    used.add(found)
    return found


def _says_nothing(message: Message) -> bool:
    return not message.tool_calls and not says_something(message.content)


def says_something(content: Content) -> bool:
    """Tell whether a content has text that is not blank, or any other part."""
    if isinstance(content, str):
        return bool(content.strip())
    return any(
        part.get("type") in _PARTS or (part.get("type") == "text" and str(part.get("text") or "").strip())
        for part in content or ()
    )
