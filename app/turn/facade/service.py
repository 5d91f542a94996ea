"""The runtime as its callers see it: four operations, their streams, and queries.

The facade neither authenticates nor limits (R16, R17, R350): that is the door's part. An operation runs in a task of
the runtime; whoever started it may go, and the turn goes on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

from app.domain.chunks import StreamChunk
from app.domain.errors import (
    GoneError,
    InvalidStateError,
    MalformedError,
    UnavailableError,
)
from app.domain.ids import conversation_of, fresh, row_key, stream_id_for
from app.domain.messages import Message
from app.domain.pause import PauseEvent, PauseState
from app.domain.persona import Persona
from app.domain.turn import Caller, OperationKind, Pause, ResultsInput, TurnInput
from app.domain.views import (
    ConversationView,
    Cursor,
    MessageView,
    Page,
    PartialResults,
    Started,
    StreamView,
)
from app.store import claims
from app.store.claims import ReplicaGoneError
from app.store.database import OutcomeUnknownError
from app.store.pauses import PauseRecord
from app.streaming.manager import AsyncStreamClientBridge
from app.streaming.tail import Tail
from app.turn.facade.catalog import Catalog
from app.turn.facade.entrance import Entrance
from app.turn.facade.expiry import Expiry
from app.turn.facade.guard_stage import GuardStage
from app.turn.facade.idempotency import Repeats, fingerprint
from app.turn.facade.knowledge import desks
from app.turn.facade.languages import Languages
from app.turn.facade.lifecycle import Lifecycle
from app.turn.facade.overrides import SessionOverrides
from app.turn.facade.pausing import Pausing
from app.turn.facade.prompts import Prompts
from app.turn.facade.publisher import Publisher
from app.turn.facade.queries import Queries
from app.turn.facade.sessions import Sessions
from app.turn.facade.spending import Spending
from app.turn.facade.tenants import Tenants
from app.turn.facade.traits import Traits
from app.turn.orchestrator.continuation import Continued, run_continuation
from app.turn.orchestrator.execution import Begin
from app.turn.orchestrator.operation import Identity, Operation
from app.turn.orchestrator.rebuilt import snapshot_of
from app.turn.orchestrator.services import Services
from app.turn.pauses.results import as_json, check_changes, check_results, named, signed

CANCEL_TRIES: Final = 10
"""How often a cancel looks again that met a stream between two of its states."""


class AgentRuntime:
    """The facade. Every method raises `AppError` for what it refuses."""

    def __init__(
        self,
        services: Services,
        tail: Tail,
        lifecycle: Lifecycle,
        tenants: Tenants,
        *,
        languages: Languages,
        overrides: SessionOverrides,
    ) -> None:
        """Keep the parts; `start` makes them live. Every call passes `tenants` first."""
        self._services = services
        self.metrics = services.metrics.render
        self._admit = tenants.admit
        self._languages = languages
        self._overrides = overrides
        self._guards = GuardStage(services.guards)
        self._tail = tail
        self._lifecycle = lifecycle
        self._queries = Queries(services.database)
        self._repeats = Repeats(services.database, self._queries.stream)
        self._entrance = Entrance()
        self._pausing = Pausing(services)
        spending = Spending(services.database, self._queries, tenants.admit)
        self.stream_usage, self.conversation_usage = spending.of_stream, spending.of_conversation
        self.session_trace = Sessions(services.database, tenants.admit).trace
        catalog = Catalog(services.personas, services.policy.default_model, overrides, tenants.admit)
        self.personas, self.persona, self.skills = catalog.personas, catalog.persona, catalog.skills
        self.session_overrides = catalog.session_overrides
        self.change_session_overrides = catalog.change_session_overrides
        self.reset_session_overrides = catalog.reset_session_overrides
        traits = Traits(services.database, services.personas, tenants.admit, persistence=services.policy.persistence)
        self.session_traits, self.change_session_traits = traits.of_session, traits.change
        parts = desks(services.database, services.library, tenants.admit, self.delete_conversation)
        self.documents, self.memories, self.users = parts
        self.stream_prompts = Prompts(services.database, tenants.admit).of_stream

    async def start(self) -> None:
        """Make ready for calls."""
        await self._lifecycle.start()
        if self._languages.detects:
            self._lifecycle.beside(self._languages.warm(), "language")
        self._lifecycle.beside(
            Expiry(self._pausing, self.go_on_expired, self._services.clock.boot_seconds).run(), "expiry"
        )

    async def stop(self) -> None:
        """Give everything back; operations that still run are handed over."""
        await self.drain()
        await self._lifecycle.stop()

    async def readiness(self) -> dict[str, bool]:
        """Give the checks that must all hold before turns are sent here."""
        return await self._lifecycle.readiness()

    # Operations -------------------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Take nothing new, let what runs end within the grace, hand over the rest, and send the readers elsewhere."""
        self._tail.hint()
        await self._lifecycle.drain()
        self._tail.cut()

    async def start_turn(self, turn: TurnInput, on_wait: Callable[[], None] | None = None) -> Started:
        """Accept a turn; the default persona answers when the turn names none (R9, R10).

        `on_wait` is called when the turn begins to wait for its conversation. Whoever stops waiting for such a turn
        takes it out of the queue.
        """
        persona_id = turn.persona_id or self._services.personas.default_id
        turn = replace(turn, caller=self._admit(turn.caller), persona_id=persona_id)
        identity = Identity(
            turn.caller,
            turn.conversation_id,
            turn.session_id,
            stream_id_for(turn.conversation),
            fresh("turn"),
            turn.idempotency_key,
            fingerprint(turn),
        )

        async def start() -> Started:
            operation = self._operation(OperationKind.TURN, identity)
            if on_wait is not None:
                operation.on_wait = on_wait
            persona = self._services.personas.known(persona_id)
            longest = self._services.policy.longest(turn.options.turn_timeout_seconds, persona.turn_timeout_seconds)
            settled = await self._languages.settle(await self._overrides.lay_over(turn, persona))
            operation.language = settled.language
            guard, begin = await self._guards.begin(operation, settled, persona, longest)
            return await self._launch(Publisher(operation, timeout=longest, guard=guard), operation, begin)

        async with self._entrance.passing():
            return await self._repeats.once(OperationKind.TURN, identity, start)

    async def pass_results(self, results: ResultsInput) -> Started | PartialResults:
        """Accept results on the stream of their pause (R74 to R92); partial ones may leave it waiting for the rest."""
        results = self._taken(results)
        record = await self._queries.stream(results.caller, results.stream_id or "")
        identity = self._identity(results, record.conversation_id, record.stream_id)

        async def start() -> Started | PartialResults:
            pause = await self._queries.held_on(record, results.pause_id)
            try:
                return await self._continue(OperationKind.CONTINUATION, pause, results, identity)
            except InvalidStateError:
                await self._queries.check_held(record, results.pause_id)
                raise

        async with self._entrance.passing():
            return await self._repeats.once(OperationKind.CONTINUATION, identity, start)

    async def resume(self, results: ResultsInput) -> Started | PartialResults:
        """Accept results for a named pause, onto a new stream (R189 to R199)."""
        results = self._taken(results)
        caller, name = results.caller, results.conversation_id or ""
        await self._queries.conversation(caller, name)
        key = row_key(caller.organization_id, name)
        identity = self._identity(results, name, stream_id_for(key))

        async def start() -> Started | PartialResults:
            pause = await self._queries.pause(key, results.pause_id or "")
            if pause is None or pause.state is not PauseState.HELD:
                message = f"The conversation does not hold the pause {results.pause_id!r}: it was continued or ended."
                raise InvalidStateError(message, pause_id=results.pause_id)
            return await self._continue(OperationKind.RESUME, pause, results, identity)

        async with self._entrance.passing():
            return await self._repeats.once(OperationKind.RESUME, identity, start)

    async def cancel(self, caller: Caller, stream_id: str) -> str:
        """End what runs on the stream, or the pause it holds; tells `cancelling`, `cancelled` or `already_ended`."""
        caller = self._admit(caller)
        record = await self._queries.stream(caller, stream_id)
        for _ in range(CANCEL_TRIES):
            if record.status.closed:
                break
            async with self._services.database.transaction() as connection:
                running = await claims.ask_to_cancel(connection, record.conversation, stream_id=stream_id)
            if running is not None:
                self._services.cancels.ask(running)
                return "cancelling"
            # What ran has paused or ended, and a held pause may be taken in this moment: then it runs again.
            record = await self._queries.stream(caller, stream_id)
            if record.pause_id is not None and await self._pausing.end(
                record.conversation, record.pause_id, PauseEvent.CANCELLED
            ):
                return "cancelled"
        return "already_ended"

    def cancel_operation(self, started: Started) -> None:
        """End the operation soon, if it still runs in this process; a pause that it has come to stays."""
        self._services.cancels.stop(started.fence)

    async def go_on_expired(self, pause: PauseRecord) -> None:
        """Go on with a turn whose pause ran out: its calls are answered as not run."""
        caller = Caller(pause.user_id, pause.organization_id)
        silent = ResultsInput(caller, (), stream_id=pause.stream_id)
        identity = self._identity(silent, pause.conversation_id, pause.stream_id)
        await self._continue(OperationKind.CONTINUATION, pause, silent, identity, expired=True)

    async def _continue(
        self,
        kind: OperationKind,
        pause: PauseRecord,
        results: ResultsInput,
        identity: Identity,
        *,
        expired: bool = False,
    ) -> Started | PartialResults:
        results = replace(results, results=named(pause, signed(results.results, results.caller)))
        check_results(pause, results.results)
        check_changes(pause, results.results, self._services.tools.argument_fault)
        continued = Continued(pause, await snapshot_of(self._services, pause), expired=expired)
        persona = Persona.from_json(continued.snapshot.persona)
        active = self._guards.active(persona)
        if results.partial:
            kept = await self._pausing.keep_partial(pause, results.results)
            if kept is not None:
                return kept
        operation = self._operation(kind, replace(identity, session_id=pause.session_id, turn_id=pause.turn_id))
        asked = continued.snapshot.options.turn_timeout_seconds
        longest = self._services.policy.longest(asked, persona.turn_timeout_seconds)
        publisher = Publisher(
            operation,
            timeout=longest,
            taken_pause=pause.pause_id,
            close_reason=PauseEvent.EXPIRED.value if expired else None,
            guard=self._guards.of_continuation(active, operation, continued.snapshot),
        )
        return await self._launch(publisher, operation, partial(run_continuation, operation, continued, results))

    def _taken(self, results: ResultsInput) -> ResultsInput:
        """Give the results as they can be stored, for the organization that the call is for."""
        plain = as_json(results.results, max_bytes=self._services.policy.max_result_bytes)
        return replace(results, caller=self._admit(results.caller), results=plain)

    def _identity(self, results: ResultsInput, conversation_id: str, stream_id: str) -> Identity:
        """Name a continuation; the request's hash is of the results as the client has sent them."""
        return Identity(
            results.caller, conversation_id, "", stream_id, "", results.idempotency_key, fingerprint(results)
        )

    def _operation(self, kind: OperationKind, identity: Identity) -> Operation:
        self._lifecycle.check_open()
        return Operation(self._services, kind, identity)

    async def _launch(self, publisher: Publisher, operation: Operation, begin: Begin) -> Started:
        task = self._lifecycle.tasks.start(publisher.run(begin), f"{operation.kind.value} {operation.stream_id}")
        try:
            return await asyncio.shield(operation.accepted)
        except asyncio.CancelledError:
            if operation.waits:
                task.cancel()
            raise
        except (ReplicaGoneError, OutcomeUnknownError):
            message = "This replica is starting anew; try again."
            raise UnavailableError(message, retry_after=1) from None

    # Streams ----------------------------------------------------------------------------------------------------

    async def open_operation(self, started: Started, after: Cursor | None = None) -> AsyncIterator[bytes]:
        """Give an operation's frames, from its first (or a cursor) to its `end`; each item is one or more frames.

        Raises MalformedError for a cursor that belongs to another operation.
        """
        conversation = conversation_of(started.stream_id)
        if conversation is None:
            message = f"{started.stream_id!r} is no stream id"
            raise ValueError(message)
        if after is not None and after.fence < started.fence:
            message = (
                f"The event {after} is not one of this request's operation, whose events begin at {started.fence}-1."
            )
            raise MalformedError(message)
        return self._tail.operation(conversation, started.stream_id, started.fence, after)

    async def open_events(
        self, caller: Caller, stream_id: str, after: Cursor | None, *, follow: bool
    ) -> AsyncIterator[bytes] | None:
        """Give a stream's frames after a cursor; None when nothing follows and nothing will."""
        record = await self._queries.stream(self._admit(caller), stream_id)
        frames = self._tail.open(record, after, follow=follow)
        if frames is not None and record.expired:
            view = await self._queries.stream_view(self._admit(caller), stream_id)
            message = "The stream's events are past their retention; its state is all that is left."
            raise GoneError(message, stream={**asdict(view), "status": view.status.value})
        return frames

    def observe(
        self, caller: Caller, conversation_id: str
    ) -> AbstractAsyncContextManager[AsyncStreamClientBridge[StreamChunk]]:
        """Observe a conversation's next operation from inside this process: chunks that no guardrail has judged."""
        return self._services.streaming.observing(row_key(self._admit(caller).organization_id, conversation_id))

    async def stream_state(self, caller: Caller, stream_id: str) -> StreamView:
        """Tell what a stream does or how it ended."""
        return await self._queries.stream_view(self._admit(caller), stream_id)

    # Pauses, conversations, personas ----------------------------------------------------------------------------

    async def pending_request(self, caller: Caller, conversation_id: str) -> Pause | None:
        """Give the pause that a conversation holds (R8)."""
        return await self._queries.pending_request(self._admit(caller), conversation_id)

    async def pending_requests(self, caller: Caller, cursor: str | None, limit: int) -> Page[Pause]:
        """List the pauses that wait for this caller."""
        return await self._queries.pending_requests(self._admit(caller), cursor, limit)

    async def create_conversation(
        self,
        caller: Caller,
        *,
        conversation_id: str | None,
        session_id: str | None,
        persona_id: str | None,
        title: str | None,
        metadata: Mapping[str, Any],
        messages: tuple[Message, ...],
    ) -> ConversationView:
        """Make a conversation."""
        if persona_id is not None:
            self._services.personas.find(persona_id)
        return await self._queries.create_conversation(
            self._admit(caller),
            conversation_id=conversation_id,
            session_id=session_id,
            persona_id=persona_id,
            title=title,
            metadata=metadata,
            initial=messages,
        )

    async def list_conversations(self, caller: Caller, cursor: str | None, limit: int) -> Page[ConversationView]:
        """List a caller's conversations, the last changed first."""
        return await self._queries.conversation_page(self._admit(caller), cursor, limit)

    async def get_conversation(self, caller: Caller, conversation_id: str) -> ConversationView:
        """Give a conversation."""
        return await self._queries.conversation(self._admit(caller), conversation_id)

    async def update_conversation(
        self, caller: Caller, conversation_id: str, *, title: str | None, metadata: Mapping[str, Any] | None
    ) -> ConversationView:
        """Change what is not None."""
        given = {"title": title, "metadata": None if metadata is None else dict(metadata)}
        changes = {name: value for name, value in given.items() if value is not None}
        return await self._queries.change_conversation(self._admit(caller), conversation_id, changes)

    async def delete_conversation(self, caller: Caller, conversation_id: str) -> None:
        """Erase a conversation with all that belongs to it."""
        for stream_id in await self._queries.erase_conversation(self._admit(caller), conversation_id):
            ring = self._services.rings.find(stream_id)
            if ring is not None:
                ring.lose()
            self._services.wakeups.wake([stream_id])

    async def list_messages(
        self, caller: Caller, conversation_id: str, *, cursor: str | None, limit: int, descending: bool
    ) -> Page[MessageView]:
        """List a conversation's messages by position."""
        return await self._queries.message_page(
            self._admit(caller), conversation_id, cursor=cursor, limit=limit, descending=descending
        )
