"""Makes a conversation's rolling summary: one attempt in a turn, under a deadline, and a failure never fails the turn.

A summary is derived from messages that are stored already and stays true whatever becomes of the turn. So it is written
at once, by a write of its own that names the version and the fence it saw, and not with the turn's outcome: a turn that
fails later does not throw away what a model was paid for, and failures are counted also where turns fail.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import asdict, field, replace
from hashlib import blake2b
from typing import Final
from uuid import UUID

import structlog

from app.conversation.compaction import (
    LEAST_OUTPUT,
    PROMPT,
    Bounds,
    Pass,
    Written,
    choose,
    read_answer,
    within,
)
from app.conversation.covered import Covered
from app.conversation.tokens import TokenCounter
from app.domain.clock import Clock
from app.domain.errors import ProviderError, ProviderUnavailableError
from app.domain.frozen import dataclass
from app.domain.generators import aclosing
from app.domain.jsontext import dumps_text
from app.domain.messages import Entry, Message
from app.domain.policy import Compaction
from app.domain.usage import ModelCall, Usage
from app.providers.attempts import AttemptFailed, AttemptRecord, GatewayEvent
from app.providers.base import ModelRequest, TextPiece, UsageReport
from app.providers.billing import billed
from app.providers.gateway import Gateway, Route
from app.store import messages, summaries
from app.store.database import Connection, Database
from app.store.summaries import SummaryRecord

BREAKER: Final = 3
"""After so many failures in a row a pass is tried only once something has changed."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a pass is to do, for which operation. After failures it waits for `patience` new messages.

    `enough` is set for a pass that the conversation's limit asks for: how many messages it is to take.
    """

    conversation: UUID
    fence: int
    compaction: Compaction
    patience: int
    profile: str | None
    default_model: str
    deadline: float
    max_input_tokens: int
    enough: int | None = None
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def model(self) -> str:
        """The model that writes the summary."""
        return self.compaction.model or self.default_model

    @property
    def at_limit(self) -> bool:
        """Tell whether the conversation's limit asks for the pass."""
        return self.enough is not None

    @property
    def route(self) -> Route:
        """How it is asked: once, since the turn waits, and nobody else, since a summary can come with the next turn."""
        return Route(self.model, fallbacks=(), attempts=1, api_keys=self.keys)

    @property
    def settings(self) -> str:
        """A name for the settings, to see whether they have changed."""
        text = dumps_text({**asdict(self.compaction), "model": self.model, "at_limit": self.at_limit})
        return blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of it. `reason` says why nothing was done; `record` is the state that holds now."""

    record: SummaryRecord | None
    reason: str | None = None
    taken: int = 0
    usage: Usage = Usage()


class _FailedError(Exception):
    """The attempt failed, for the reason that is its text; `usage` is what it cost all the same."""

    def __init__(self, reason: str, usage: Usage = Usage()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.usage = usage


@dataclass(frozen=True, slots=True)
class Summarizer:
    """Makes summaries with the models there are.

    `before_call` is awaited before a model is asked and may say that the operation is lost; `on_call` is told of each
    request that it took.
    """

    database: Database
    gateway: Gateway
    clock: Clock
    before_call: Callable[[], Awaitable[None]]
    on_call: Callable[[ModelCall], None]

    async def attempt(self, task: Task, record: SummaryRecord | None, counter: TokenCounter) -> Tried:
        """Make a pass if one is due. Never raises for a failed pass; the state is as it was then, but for the count."""
        if record is not None and self._cools_down(task, record):
            return Tried(record, "cooldown")
        try:
            self.gateway.check(task.route)
        except ProviderUnavailableError:
            return Tried(record, "no_model")
        async with self.database.transaction() as connection:
            entries, tail_from, newest = await _candidates(connection, task, record)
            behind = await _head_end(connection, task)
        if record is not None and _is_open(record, task, newest):
            return Tried(record, "breaker")
        head = 0 if record is not None and record.covers else task.compaction.head
        bounds = Bounds(head, tail_from, task.compaction.least, task.compaction.most, task.enough, behind)
        chosen = choose(entries, bounds)
        if chosen is None:
            return Tried(record, "below_threshold" if entries else "no_messages")
        seen = record or SummaryRecord(task.conversation)
        await self.before_call()
        try:
            return await self._pass(task, seen, chosen, counter)
        except _FailedError as failure:
            return await self._count(task, seen, failure, newest)

    def _cools_down(self, task: Task, record: SummaryRecord) -> bool:
        if task.at_limit or record.made_at is None:
            return False
        return (self.clock.now() - record.made_at).total_seconds() < task.compaction.cooldown

    async def _pass(self, task: Task, seen: SummaryRecord, chosen: Pass, counter: TokenCounter) -> Tried:
        taken, told = within(chosen.taken, counter, task.max_input_tokens)
        before = f'"summary_so_far": {dumps_text(seen.text)}, "memory_so_far": {dumps_text(seen.memory)}'
        given = f'{{{before}, "messages": {told}}}'
        written, usage = await self._ask(task, given)
        behind = {entry.position for entry in chosen.taken[len(taken) :]}
        left = [*chosen.left, *behind]
        new = replace(
            seen,
            version=seen.version + 1,
            text=written.text,
            memory=written.memory if written.memory is not None else seen.memory,
            covers=Covered(seen.covers).adding((entry.position for entry in taken), left).spans,
            message_count=seen.message_count + len(taken),
            head=seen.head if seen.covers else task.compaction.head,
            at_limit=seen.at_limit or task.at_limit,
            failures=0,
            failed=None,
            made_at=self.clock.now(),
        )
        if not await self._write(task, new, seen.version):
            return Tried(seen if seen.version else None, "superseded", usage=usage)
        return Tried(new, None, len(taken), usage)

    async def _ask(self, task: Task, given: str) -> tuple[Written, Usage]:
        usage = Usage()
        text: list[str] = []
        try:
            request = ModelRequest(
                model=task.model,
                messages=(Message("system", task.compaction.system_prompt or PROMPT), Message("user", given)),
                temperature=task.compaction.temperature,
                max_tokens=max(LEAST_OUTPUT, task.compaction.max_output_tokens),
                response_format={"type": "json_object"},
            )
            async with asyncio.timeout(task.deadline), aclosing(self._events(task, request)) as events:
                async for event in events:
                    if isinstance(event, TextPiece):
                        text.append(event.text)
                    elif isinstance(event, UsageReport | AttemptFailed):
                        usage = event.usage
        except TimeoutError:
            raise _FailedError("deadline", usage) from None
        except (ProviderError, ProviderUnavailableError):
            raise _FailedError("model_failed", usage) from None
        except Exception:  # noqa: BLE001 - whatever it was, the turn goes on
            structlog.get_logger(__name__).exception("summary.failed")
            raise _FailedError("failed", usage) from None
        written = read_answer("".join(text))
        if written is None:
            raise _FailedError("empty_summary", usage)
        return written, usage

    def _events(self, task: Task, request: ModelRequest) -> AsyncGenerator[GatewayEvent, None]:
        def told(record: AttemptRecord) -> None:
            self.on_call(billed(record, self.gateway.registry, purpose="summary"))

        return self.gateway.stream(task.route, request, told)

    async def _count(self, task: Task, seen: SummaryRecord, failure: _FailedError, newest: int) -> Tried:
        """Count a failure in the stored state; the summary that is there stays in use."""
        again = (seen.failed or {}).get("settings") == task.settings
        failed = {"settings": task.settings, "upto": newest, "reason": failure.reason}
        counted = replace(seen, failures=(seen.failures if again else 0) + 1, failed=failed)
        await self._write(task, counted, seen.version)
        structlog.get_logger(__name__).warning(
            "summary.not_made", reason=failure.reason, failures=counted.failures, profile=task.profile
        )
        return Tried(counted, failure.reason, usage=failure.usage)

    async def _write(self, task: Task, new: SummaryRecord, seen: int) -> bool:
        try:
            async with self.database.transaction() as connection:
                return await summaries.write(connection, new, seen=seen, fence=task.fence)
        except Exception:  # noqa: BLE001 - the summary is lost, the messages are not
            structlog.get_logger(__name__).exception("summary.not_written")
            return False


def _is_open(record: SummaryRecord, task: Task, newest: int) -> bool:
    """Tell whether the breaker is open: nothing has changed since the failures, neither settings nor many messages."""
    failed = record.failed or {}
    if record.failures < BREAKER or failed.get("settings") != task.settings:
        return False
    return newest - int(failed.get("upto", 0)) < task.patience


async def _head_end(connection: Connection, task: Task) -> int:
    """Give the last position of the head that a summary at the limit leaves alone, whoever made the summary so far."""
    if not task.at_limit or not task.compaction.head:
        return 0
    head = await messages.oldest(connection, task.conversation, limit=task.compaction.head)
    return head[-1].position if head else 0


async def _candidates(connection: Connection, task: Task, record: SummaryRecord | None) -> tuple[list[Entry], int, int]:
    """Give the oldest uncovered entries, where the tail begins, and the newest position.

    The newest message is always in the tail: it is the turn's own input.
    """
    tail = await messages.newest(connection, task.conversation, limit=max(1, task.compaction.tail))
    covered = Covered(record.covers if record is not None else ())
    most = task.compaction.most
    if not covered:
        head = task.compaction.head
        found = await messages.oldest(connection, task.conversation, limit=head) if head else []
        behind = found[-1].position if found else 0
        found += await messages.oldest(connection, task.conversation, after=behind, limit=most + 1)
    else:
        found = []
        # Where no head was recorded, what lies between the spans is a gap that stays (R72).
        for first, last in covered.inner_gaps if record is not None and record.head is not None else ():
            found += await messages.oldest(connection, task.conversation, after=first - 1, before=last + 1)
        found += await messages.oldest(connection, task.conversation, after=covered.last, limit=most + 1)
    newest = tail[-1].position if tail else 0
    return found, tail[0].position if tail else 0, newest
