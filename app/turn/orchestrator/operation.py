"""One operation: a turn, a continuation or a resume, from its first transaction (T1) to its second (T2).

The fence that T1 takes is named by every later write. Whoever no longer holds it stops, and says nothing more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from app.domain.answers import result_message
from app.domain.approval import approved_calls, unrun
from app.domain.chunks import StreamChunk
from app.domain.frozen import dataclass
from app.domain.ids import fresh, fresh_uuid, row_key
from app.domain.language import Language
from app.domain.memory import Recalled
from app.domain.messages import ToolCall
from app.domain.persona import Persona
from app.domain.tools import ToolResult
from app.domain.turn import Caller, OperationKind, StreamStatus
from app.domain.usage import ModelCall
from app.domain.views import Started
from app.store import claims, inbound, usage
from app.store.claims import Claim, ReplicaGoneError
from app.store.database import Connection, is_lost
from app.store.messages import NewMessage
from app.streaming.frames import Envelope
from app.streaming.ring import Batch, LostFenceError, Ring
from app.turn.gmi.session import Session, Trace
from app.turn.orchestrator.services import Services
from app.turn.orchestrator.tally import Tally

Opening = Callable[[Sequence[StreamChunk]], list[Batch]]
"""Encodes the frames with which the operation begins: those of the chunks so far, then those of the given ones."""

Accept = Callable[[Connection, int, Opening], Awaitable[None]]
"""What T1 does besides taking the conversation, under the new fence; it stores what the `Opening` gives."""

AcceptFree = Callable[[Connection, Sequence[bytes]], Awaitable[int | None]]
"""Takes a conversation that nobody has, stores everything, and gives the fence; None when somebody has it."""

RETRY_SECONDS: Final = 0.25
PATIENCE_SECONDS: Final = 5.0
"""How long T1 tries to reach a database that is away, before the request is refused."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose operation it is, and what it belongs to."""

    caller: Caller
    conversation_id: str
    session_id: str
    stream_id: str
    turn_id: str
    idempotency_key: str | None = None
    request_hash: str | None = None


class Operation:
    """An operation of this process. Before T1 its chunks wait; T1 stores them, and from then on the ring has them.

    It has slots, since it has more attributes than Python keeps without a table for each instance.
    """

    __slots__ = (
        "_early", "_envelope", "_note_on_first", "_opening", "_owed", "_rounds", "accepted", "afterwards", "caller",
        "calls", "cancel", "conversation", "conversation_id", "degraded", "fence", "flags", "id", "identity", "keeps",
        "kind", "language", "on_wait", "persona", "recalled", "replica", "ring", "said", "sentiment", "services",
        "session", "session_id", "stream_id", "tally", "touched", "trace", "turn_id", "waits",
    )  # fmt: skip

    def __init__(self, services: Services, kind: OperationKind, identity: Identity) -> None:
        """Name the operation; nothing is stored yet."""
        self.id = fresh_uuid()
        self.services = services
        self.kind = kind
        self.identity = identity
        self.caller = identity.caller
        self.conversation_id = identity.conversation_id
        self.conversation: UUID = row_key(identity.caller.organization_id, identity.conversation_id)
        self.session_id = identity.session_id
        self.stream_id = identity.stream_id
        self.turn_id = identity.turn_id
        self.replica = services.lease.id
        self.accepted: asyncio.Future[Started] = asyncio.get_running_loop().create_future()
        self.fence = 0
        self.ring: Ring | None = None
        self.tally = Tally()
        self.session = Session(Trace(services.clock.now))
        self.waits = False
        self.on_wait: Callable[[], None] = _nothing
        self.persona: Persona | None = None
        self.said, self.sentiment = "", 0.0
        self.recalled: tuple[Recalled, ...] = ()
        self.language: Language | None = None
        self.trace: Mapping[str, str] | None = None
        self.degraded = False
        self.keeps: Mapping[str, Any] = {}
        self.flags: Mapping[str, Any] = {}
        self.cancel: Callable[[], None] = _nothing
        self.afterwards: list[Callable[[StreamStatus], None]] = []
        self._envelope: Envelope | None = None
        self._early: list[StreamChunk] = []
        self._note_on_first: Mapping[str, Any] | None = None
        self._opening: dict[int, list[bytes]] = {}
        self.touched = False
        self._rounds = 0
        self.calls: list[ModelCall] = []
        self._owed: dict[str, ToolResult] = {}

    # Before and in T1 -------------------------------------------------------------------------------------------

    def name(self, gmi_instance_id: str, persona: Persona) -> None:
        """Say who answers: the part that all frames of the operation share."""
        self.persona = persona
        shared = {"language": self.language.to_json()} if self.language is not None else None
        self._envelope = Envelope(
            stream_id=self.stream_id,
            gmi_instance_id=gmi_instance_id,
            persona_id=persona.id,
            metadata=shared,
            trace=self.trace,
        )

    def claim(self, persona_id: str, place: int | None = None) -> Claim:
        """Say what T1 takes the conversation for."""
        return Claim(
            operation=self.id,
            replica=self.replica,
            conversation=self.conversation,
            caller=self.caller,
            conversation_id=self.conversation_id,
            session_id=self.session_id,
            persona_id=persona_id,
            stream_id=self.stream_id,
            place=place,
        )

    async def accept(self, claim: Claim, then: Accept, *, create: bool) -> None:
        """T1: take the conversation, and do `then` under the new fence, which stores the chunks so far.

        Raises what `take` and `then` raise; the operation has then left no trace. Readers find the ring afterwards.
        """

        async def work(connection: Connection) -> int:
            fence = await claims.take(connection, claim, create=create)

            def opening(chunks: Sequence[StreamChunk]) -> list[Batch]:
                frames = self._opening[fence] = self.encode_from(1, [*self._early, *chunks], fence)
                return [self._batch(fence, 1, frames)] if frames else []

            await then(connection, fence, opening)
            return fence

        async def landed(connection: Connection) -> int | None:
            state = await claims.lock(connection, self.conversation)
            if state is None or state[1] != self.id:
                await self._check_not_over(connection)
                return None
            if state[0] not in self._opening:
                # It was accepted, and another process has taken it over since then.
                raise ReplicaGoneError
            return state[0]

        self.services.cancels.enter(self, self.id)
        gone = self.services.lease.is_gone
        self.fence = await self.services.database.land(
            work, landed, give_up=lambda: gone(self.replica), patience=PATIENCE_SECONDS
        )
        self._begin(self._opening[self.fence])

    async def accept_free(self, store: AcceptFree) -> bool:
        """T1 as one statement, for a conversation that nobody has: `store` is given the first frames without their ids.

        False, and nothing is done, when `store` gives no fence: then T1 has to look what is in the way.
        """
        rests = [frame[frame.index(b"\n") :] for frame in self.encode_from(1, self._early, 0)]

        async def work(connection: Connection) -> int:
            return await store(connection, rests) or 0

        async def landed(connection: Connection) -> int | None:
            state = await claims.lock(connection, self.conversation)
            if state is None or state[1] != self.id:
                await self._check_not_over(connection)
                return None
            entry = await inbound.find(connection, self.conversation, self.id)
            if entry is None or entry.attempt > 1:
                # It was accepted, and another process has taken it over since then.
                raise ReplicaGoneError
            return state[0]

        self.services.cancels.enter(self, self.id)
        gone = self.services.lease.is_gone
        fence = await self.services.database.land(
            work, landed, give_up=lambda: gone(self.replica), patience=PATIENCE_SECONDS, alone=True
        )
        if fence:
            self.fence = fence
            self._begin([b"id: %d-%d%b" % (fence, n, rest) for n, rest in enumerate(rests, start=1)])
        return bool(fence)

    async def _check_not_over(self, connection: Connection) -> None:
        """Raise ReplicaGoneError when it was accepted, and another has ended it since then: once is enough."""
        entry = await inbound.find(connection, self.conversation, self.id)
        if entry is not None and entry.status != "waiting":
            raise ReplicaGoneError

    def adopt(self, operation: UUID, fence: int) -> None:
        """Go on as an operation that another process had begun, under the fence that took it over from there."""
        self.id, self.fence = operation, fence
        self.services.cancels.enter(self, operation)
        self._begin([])

    def _begin(self, frames: list[bytes]) -> None:
        self.ring = Ring(self.conversation, self.stream_id, self.fence)
        self.ring.on_lost = self.cancel
        self.ring.append_durable(frames)
        self._early.clear()
        self._opening.clear()
        self.on_wait = _nothing
        self.services.rings.open(self.ring)
        self.services.cancels.register(self.fence, self.cancel, self.ring.lose)
        self.accepted.set_result(Started(self.stream_id, self.conversation_id, self.turn_id, self.fence))
        self.services.wakeups.wake([self.stream_id])

    def refuse(self, error: Exception) -> None:
        """Tell whoever waits for the operation to be accepted that it is not; it may be that nobody waits any more."""
        self.accepted.set_exception(error)
        self.accepted.exception()  # else the event loop calls an error unseen that the publisher has logged

    # Between T1 and T2 ------------------------------------------------------------------------------------------

    def emit(self, chunk: StreamChunk) -> None:
        """Put a chunk on the stream. Raises LostFenceError when another operation has taken over."""
        if self._note_on_first is not None:
            chunk, self._note_on_first = _noted(chunk, self._note_on_first), None
        if self.ring is None:
            self._early.append(chunk)
        else:
            self.ring.append(self._encode(self.fence, self.ring.last_n + 1, chunk))

    def note_on_first(self, metadata: Mapping[str, Any]) -> None:
        """Add metadata to the first chunk, whatever its type; a turn that was not accepted yet may have said it."""
        if self._early:
            self._early[0] = _noted(self._early[0], metadata)
        else:
            self._note_on_first = metadata

    async def touch(self) -> None:
        """Store, once, that the outside world may see something of this operation: it can't be run again unseen."""
        if not self.touched:
            database = self.services.database
            await self._note(
                database.statement, lambda connection: inbound.touch(connection, self.conversation, self.id, self.fence)
            )
            self.touched = True

    async def before_effect(self) -> None:
        """Wait until this process may act, and store that the outside world may see it."""
        await self.may_go_on()
        await self.touch()

    def owe(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> None:
        """Note the calls that were approved: until they have been run, their answer is that they were not."""
        self._owed = {call.id: unrun(call, results) for call in approved_calls(calls, results)}

    def late_answers(self) -> list[NewMessage]:
        """Give the stored answers of the calls that were approved, in call order."""
        return [NewMessage(fresh("msg"), result_message(result), self.turn_id) for result in self._owed.values()]

    async def after_round(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> None:
        """Journal a complete tool round with the usage so far. LostFenceError when the operation is not ours."""
        self._rounds += 1
        for result in results:
            if (owed := self._owed.get(result.tool_call_id)) is not None:
                self._owed[result.tool_call_id] = replace(result, decision=owed.decision)
        entry = {
            "calls": [call.to_json() for call in calls],
            "results": [result.to_json() for result in results],
            "usage": self.tally.usage.to_json(),
        }
        place = self._rounds

        async def write(connection: Connection) -> bool:
            mine = await inbound.journal(connection, self.conversation, self.id, self.fence, place=place, entry=entry)
            if mine:
                await self.keep_calls(connection)
            return mine

        await self._note(self.services.database.transaction, write)

    async def keep_calls(self, connection: Connection) -> None:
        """Put the attempts at model requests so far into the ledger; those that are there stay as they are."""
        await usage.append(
            connection,
            self.conversation,
            fence=self.fence,
            stream_id=self.stream_id,
            turn_id=self.turn_id,
            calls=tuple(self.calls),
        )

    async def _note(
        self,
        connected: Callable[[], AbstractAsyncContextManager[Connection]],
        write: Callable[[Connection], Awaitable[bool]],
    ) -> None:
        """Do a fenced write until its outcome is known; writing twice must be the same as once."""
        while True:
            try:
                async with connected() as connection:
                    landed = await write(connection)
            except Exception as error:
                if not is_lost(error):
                    raise
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if not landed:
                self.lose()
            return

    @property
    def goes_on(self) -> bool:
        """Tell whether this process may act and the ring has room; if not, `may_go_on` waits for it, or says why."""
        ring = self.ring
        return self.services.lease.holds() and (ring is None or (ring.has_room and not ring.lost))

    async def may_go_on(self) -> None:
        """Wait until this process may act and the ring has room; LostFenceError when the operation is not ours."""
        lease, ring = self.services.lease, self.ring
        if not lease.holds():
            await lease.until_fresh()
        if ring is not None:
            if not ring.has_room:
                await ring.room()
            if ring.lost:
                raise LostFenceError

    def lose(self) -> None:
        """Learn that the fence is gone."""
        if self.ring is not None:
            self.ring.lose()
        raise LostFenceError

    # Frames -----------------------------------------------------------------------------------------------------

    def encode_from(self, n: int, chunks: Sequence[StreamChunk], fence: int) -> list[bytes]:
        """Encode chunks as frames `n`, `n`+1, … of a fence."""
        return [self._encode(fence, place, chunk) for place, chunk in enumerate(chunks, start=n)]

    def _encode(self, fence: int, n: int, chunk: StreamChunk) -> bytes:
        if self._envelope is None:
            message = "an operation must be named before it says anything"
            raise RuntimeError(message)
        return self._envelope.encode(fence, n, chunk, self.services.clock.now())

    def _batch(self, fence: int, first_n: int, frames: list[bytes]) -> Batch:
        last_n = first_n + len(frames) - 1
        return Batch(self.conversation, self.stream_id, fence, first_n, last_n, b"".join(frames))


def _noted(chunk: StreamChunk, metadata: Mapping[str, Any]) -> StreamChunk:
    return replace(chunk, metadata={**(chunk.metadata or {}), **metadata})


def _nothing() -> None:
    """Do nothing: the operation of a test, say, that nobody cancels."""
