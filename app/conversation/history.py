"""The history of a turn: the messages that may be told, with the summary in the place of those that it covers.

`arranged` is the rule, on values alone; `read` gives it the rows that it can need, which are a bounded number however
long the conversation is.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from app.conversation.covered import Covered
from app.conversation.valid import SUMMARY_SOURCE
from app.conversation.window import head_stop, window
from app.domain.frozen import dataclass
from app.domain.jsontext import dumps_text
from app.domain.messages import Entry, Message
from app.domain.policy import HistoryPolicy
from app.store import messages
from app.store.database import Connection

LONGEST_UNCOVERED: Final = 1000
"""With a rolling summary the limit does not count; but no more than this many messages that it has not taken yet are
told, so that switching it on in a very long conversation costs no more than in a short one."""

_FRAME: Final = "A summary of the earlier part of this conversation, made by the service:"


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary that is told, and what it covers.

    `head` is None where it was not recorded: such a conversation keeps its gap (R72), and of what lies in front of the
    last covered message only the first `head_now` messages are told. `at_limit` tells that the limit counts beside it.
    """

    text: str
    memory: Mapping[str, Any] | None
    covered: Covered
    head: int | None
    head_now: int
    at_limit: bool

    def message(self) -> Message:
        """Give the message that tells of it."""
        facts = f"\n\n{dumps_text(self.memory)}" if self.memory else ""
        return Message("summary", f"{_FRAME}\n\n{self.text}{facts}", metadata={"source": SUMMARY_SOURCE})


def arranged(entries: Sequence[Entry], summary: Summary | None, policy: HistoryPolicy) -> list[Message]:
    """Give the messages that are told: the head, the summary, and what it does not cover, within the limit."""
    if summary is None:
        return window([entry.message for entry in entries], limit=policy.limit, head=policy.head)
    before, behind = _uncovered(entries, summary)
    told = [*(entry.message for entry in before), summary.message(), *(entry.message for entry in behind)]
    if summary.at_limit:
        return window(told, limit=policy.limit, head=policy.head)
    return window(told, limit=_bound(policy), head=len(before))


def _uncovered(entries: Sequence[Entry], summary: Summary) -> tuple[list[Entry], list[Entry]]:
    covered = summary.covered
    if summary.head is None:
        before = [entry for entry in entries if entry.position <= covered.last]
        stop = head_stop([entry.message for entry in before], summary.head_now)
        return before[:stop], [entry for entry in entries if entry.position > covered.last]
    free = [entry for entry in entries if entry.position not in covered]
    return (
        [entry for entry in free if entry.position < covered.first],
        [entry for entry in free if entry.position > covered.first],
    )


def _bound(policy: HistoryPolicy) -> int:
    return max(policy.limit, LONGEST_UNCOVERED) if policy.limit else 0


async def read(
    connection: Connection, conversation: UUID, summary: Summary | None, policy: HistoryPolicy
) -> list[Entry]:
    """Give the entries that `arranged` needs; with a limit, their number does not grow with the conversation."""
    if summary is None:
        found = await _edges(connection, conversation, policy)
    else:
        found = await _around(connection, conversation, summary, policy)
    return in_order(found)


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Give entries that come in any order, and perhaps several times, once and in order."""
    once = {entry.position: entry for entry in entries}
    return [once[position] for position in sorted(once)]


def reach(policy: HistoryPolicy) -> tuple[int | None, int]:
    """Give how many messages of either end are needed where no summary is told; None is all.

    Besides, the message right behind a round that makes the head longer is: it may be a summary, or tell that one with
    which the newest messages begin does not stand there.
    """
    if policy.limit == 0:
        return None, 0
    # One more than the head, since a summary may stand right behind it; two more at the end, for two summaries.
    return policy.head + 1, policy.limit + 2


async def _edges(connection: Connection, conversation: UUID, policy: HistoryPolicy) -> list[Entry]:
    first, last = reach(policy)
    found = await messages.oldest(connection, conversation, limit=first, and_next=True)
    if first is not None:
        found += await messages.last_summary(connection, conversation)
        found += await messages.newest(connection, conversation, limit=last)
    return found


async def _around(connection: Connection, conversation: UUID, summary: Summary, policy: HistoryPolicy) -> list[Entry]:
    limit = policy.limit if summary.at_limit else _bound(policy)
    covered = summary.covered
    before = covered.first
    found: list[Entry] = []
    if summary.head is None:
        before = covered.last + 1
        if summary.head_now:
            found += await messages.oldest(connection, conversation, before=before, limit=summary.head_now)
    else:
        found += await messages.oldest(connection, conversation, before=before)
        for first, last in covered.inner_gaps:
            found += await messages.oldest(connection, conversation, after=first - 1, before=last + 1)
    if limit == 0:
        return found + await messages.oldest(connection, conversation, after=covered.last)
    if summary.at_limit and policy.head:
        # The first messages of the conversation may reach behind what the summary covers.
        found += await messages.oldest(connection, conversation, after=covered.last, limit=policy.head, and_next=True)
    found += await messages.last_summary(connection, conversation)
    return found + await messages.newest(connection, conversation, after=covered.last, limit=limit + 2)
