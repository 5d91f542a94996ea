"""GMIs that remember: one for each session, with a history of its own in this process, for a host that brings its own.

The runtime's own GMI remembers nothing and needs none of this. With conversational persistence off, a history in
memory is all that there is of a session, so turns are told it and a pause is continued by nobody else (R126 to R136).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, Final

import structlog

from app.domain.chunks import GmiChunk, GmiOutput
from app.domain.frozen import dataclass
from app.domain.generators import aclosing
from app.domain.messages import CONTEXT_CHARACTERS, Message
from app.domain.session import SessionKey
from app.domain.turn import Caller
from app.turn.gmi.base import Gmi, GmiTurnInput, takes_results_together

OWN_HISTORY: Final = 20
"""How many messages a GMI remembers where its persona says nothing else (R307)."""

SHUTDOWN_SECONDS: Final = 10.0


class LiveGmi:
    """A GMI that remembers every turn of its session, whatever the conversation. It runs one turn at a time.

    The host's own is told of what happens here by methods that it may have: `hydrate_conversation_history(messages)`
    and `hydrate_turn_context(session_id=…, conversation_id=…, organization_id=…)` when the runtime sets its history,
    and `shutdown()`, which is awaited, once.
    """

    def __init__(self, own: Gmi) -> None:
        """Begin without a history."""
        self.own = own
        self.instance_id = own.instance_id
        self.takes_results_together = takes_results_together(own)
        self.history: tuple[Message, ...] = ()
        self._at_work = asyncio.Lock()
        self._turns: dict[str, str] = {}

    @property
    def is_busy(self) -> bool:
        """Tell whether a turn is running on it."""
        return self._at_work.locked()

    def holds(self, conversation_id: str, turn_id: str) -> bool:
        """Tell whether the turn is in the history, and no later one of its conversation."""
        return self._turns.get(conversation_id) == turn_id

    def is_shared(self, conversation_id: str) -> bool:
        """Tell whether the history has turns of other conversations as well."""
        return self._turns.keys() > {conversation_id}

    def begin(self, messages: Sequence[Message], turn_id: str, **context: str) -> None:
        """Put this history in the place of its own: nothing of another conversation's turn carries over (R142 to R153).

        `context` is the `session_id`, the `conversation_id` and the `organization_id` of the turn.
        """
        told = tuple(message for message in messages if message.role != "system")
        _tell(self.own, "hydrate_conversation_history", told)
        _tell(self.own, "hydrate_turn_context", **context)
        self.history = told
        self._turns = {context["conversation_id"]: turn_id}

    async def process_turn_stream(self, turn: GmiTurnInput) -> AsyncIterator[GmiChunk | GmiOutput]:
        """Let the host's GMI run the turn, behind one that it runs already, and remember what was said."""
        async with self._at_work, aclosing(self.own.process_turn_stream(turn)) as items:
            async for item in items:
                if isinstance(item, GmiOutput):
                    self._remember(turn, item)
                yield item

    def _remember(self, turn: GmiTurnInput, output: GmiOutput) -> None:
        longest = turn.persona.conversation_context.max_messages or OWN_HISTORY
        kept = [*self.history, *_given(turn.messages), *_said(turn, output)][-longest:]
        orphans = sum(1 for _ in takewhile(lambda message: message.role == "tool", kept))
        self.history = tuple(kept[orphans:])
        self._turns[turn.context.conversation_id] = turn.context.turn_id


def remembered(gmi: Gmi) -> tuple[Message, ...]:
    """Give what a GMI remembers; the runtime's own remembers nothing."""
    return gmi.history if isinstance(gmi, LiveGmi) else ()


def _given(messages: Sequence[Message]) -> list[Message]:
    """Give what an operation brought: the answers of a pause, or the one input."""
    answers = list(takewhile(lambda message: message.role == "tool", reversed(messages)))[::-1]
    return answers or [_as_said(message) for message in messages[-1:]]


def _as_said(message: Message) -> Message:
    """Give the user's message without what the runtime has put in front of it for this one turn."""
    metadata = dict(message.metadata or {})
    beside = metadata.pop(CONTEXT_CHARACTERS, 0)
    if not beside:
        return message
    said = message.content
    said = said[1:] if isinstance(said, list) else str(said)[beside:].lstrip()
    return replace(message, content=said, metadata=metadata or None)


def _said(turn: GmiTurnInput, output: GmiOutput) -> list[Message]:
    """Give what the GMI added: its own rounds where it tells them, its answer or the calls of the pause."""
    if len(output.history) > len(turn.messages):
        said = list(output.history[len(turn.messages) :])
        ends = said[-1].role == "assistant" and (not output.is_final or said[-1].content == output.response_text)
        if ends or not output.response_text:
            return said
    else:
        said = []
    calls = () if output.is_final else output.tool_calls
    if calls or output.response_text:
        said.append(Message("assistant", output.response_text, tool_calls=calls))
    return said


def _tell(own: Gmi, method: str, *values: Any, **named: Any) -> None:
    told = getattr(own, method, None)
    if told is not None:
        told(*values, **named)


@dataclass(slots=True)
class _Seat:
    persona_id: str
    gmi: LiveGmi
    used_at: float


class LiveGmis:
    """Gives each session its one GMI. Another persona ends it, and nobody is given one that has begun to end."""

    def __init__(self, make: Callable[[Caller, str, str], Gmi], *, shutdown_seconds: float = SHUTDOWN_SECONDS) -> None:
        """`make` builds a host's GMI for a caller, a session id and a persona id."""
        self._make = make
        self._shutdown_seconds = shutdown_seconds
        self._seats: dict[SessionKey, _Seat] = {}
        self._ending: dict[SessionKey, asyncio.Task[None]] = {}
        self._log = structlog.get_logger(__name__)

    async def acquire(self, caller: Caller, session_id: str, persona_id: str) -> Gmi:
        """Give the session's GMI for the persona, and never one that is ending: that is waited for (R171 to R177)."""
        key = SessionKey.of(caller, session_id)
        while True:
            seat = self._seats.get(key)
            if seat is not None and seat.persona_id != persona_id:
                self._end(key)
            if key in self._ending:
                await asyncio.shield(self._ending[key])
                continue
            if seat is None:
                seat = _Seat(persona_id, LiveGmi(self._make(caller, session_id, persona_id)), 0.0)
                self._seats[key] = seat
            seat.used_at = asyncio.get_running_loop().time()
            return seat.gmi

    async def refresh(self, persona_id: str) -> None:
        """End every GMI of a persona that has changed."""
        await self._end_all(key for key, seat in self._seats.items() if seat.persona_id == persona_id)

    async def cleanup_inactive(self, idle_seconds: float) -> None:
        """End every GMI that nobody has asked for in so long."""
        since = asyncio.get_running_loop().time() - idle_seconds
        await self._end_all(key for key, seat in self._seats.items() if seat.used_at <= since)

    async def close(self) -> None:
        """End them all."""
        await self._end_all(self._seats)

    async def _end_all(self, keys: Any) -> None:
        for key in list(keys):
            self._end(key)
        await asyncio.gather(*self._ending.values())

    def _end(self, key: SessionKey) -> None:
        seat = self._seats.pop(key)
        ending = asyncio.create_task(self._shut_down(seat.gmi), name=f"end of {seat.gmi.instance_id}")
        self._ending[key] = ending
        ending.add_done_callback(lambda _: self._ending.pop(key, None))

    async def _shut_down(self, gmi: LiveGmi) -> None:
        shutdown = getattr(gmi.own, "shutdown", None)
        if shutdown is None:
            return
        try:
            async with asyncio.timeout(self._shutdown_seconds):
                await shutdown()
        except Exception:  # noqa: BLE001 - it is gone either way
            self._log.exception("gmi.shutdown_failed", instance_id=gmi.instance_id)
