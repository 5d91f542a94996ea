"""The token budget: history is cut at the edges of rounds to what the model's window leaves (and never the input)."""

from collections.abc import Sequence
from typing import Any

from app.conversation.rounds import Block, blocks
from app.conversation.tokens import TokenCounter, message_tokens, messages_tokens, surely_fit
from app.conversation.valid import OPENING, SUMMARY_SOURCE, Repaired, valid
from app.domain.errors import TooLargeError
from app.domain.frozen import dataclass
from app.domain.messages import Message


@dataclass(frozen=True, slots=True)
class Room:
    """A model's window in tokens, and what of it is taken before any message: prompt, tools, and the answer to come."""

    model: str
    window: int
    system: int
    tools: int
    answer: int
    counter: TokenCounter

    @property
    def budget(self) -> int:
        """What is left for messages; it may be less than nothing."""
        return self.window - self.system - self.tools - self.answer

    def check(self, messages: Sequence[Message], what: str, *, slack: int = 0) -> None:
        """Raise TooLargeError, which names the sizes, unless the messages fit; `slack` may be used besides."""
        if not surely_fit(messages, self.counter, self.budget + slack):
            self.check_size(messages_tokens(messages, self.counter), what, slack=slack)

    def check_size(self, size: int, what: str, *, slack: int = 0) -> None:
        """Raise the same for messages that were counted already."""
        if size <= self.budget + slack:
            return
        about = "" if self.counter.exact else "about "
        text = (
            f"{what} does not fit into the window of {self.model}, which is {self.window} tokens: it takes {about}"
            f"{size}, beside {self.system} of the persona's prompt, {self.tools} of tools and {self.answer} kept for "
            "the answer. Shorten it, or choose a model with a larger window."
        )
        raise TooLargeError(text, **self.sizes(size))

    def sizes(self, messages: int) -> dict[str, Any]:
        """Give the sizes as a client reads them."""
        return {
            "window": self.window,
            "messages": messages,
            "system": self.system,
            "tools": self.tools,
            "answer": self.answer,
            "estimated": not self.counter.exact,
        }


@dataclass(frozen=True, slots=True)
class Fitted(Repaired):
    """A valid list that was cut to a budget, and how many tokens it takes."""

    tokens: int


def fitted(messages: Sequence[Message], *, budget: int, head: int, counter: TokenCounter) -> Fitted:
    """Give the valid form of what fits: the last block, summaries, the first `head` messages, then the newest others.

    A block goes whole or stays whole, and the newest ones without a hole. Only the last block may exceed the budget.
    """
    whole = valid(messages)
    size = messages_tokens(whole.messages, counter)
    if size <= budget:
        return Fitted(whole.messages, whole.faults, size)
    told = whole.messages
    room = budget - message_tokens(OPENING, counter)
    found = blocks(told)
    costs = [messages_tokens(told[block.start : block.stop], counter) for block in found]
    chosen = {len(found) - 1}
    room -= costs[-1]
    for place in _first_of_all(told, found, head):
        if place not in chosen and costs[place] <= room:
            chosen.add(place)
            room -= costs[place]
    for place in range(len(found) - 2, -1, -1):
        if place in chosen:
            continue
        if costs[place] > room:
            break
        chosen.add(place)
        room -= costs[place]
    cut = [message for place in sorted(chosen) for message in told[found[place].start : found[place].stop]]
    kept = valid(cut).messages
    return Fitted(kept, whole.faults, messages_tokens(kept, counter))


def _first_of_all(messages: Sequence[Message], found: Sequence[Block], head: int) -> list[int]:
    """Give the blocks that are chosen before the newest: summaries, then those of the head."""
    source = [(messages[block.start].metadata or {}).get("source") for block in found]
    summaries = [place for place, name in enumerate(source) if name == SUMMARY_SOURCE]
    return summaries[::-1] + [place for place, block in enumerate(found) if block.start < head]
