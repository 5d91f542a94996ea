"""A runtime that says what a test tells it to say, and remembers what it was asked."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from app.api.desks import DocumentDesk, MemoryDesk, UserDesk
from app.domain.errors import NotFoundError, PersonaNotFoundError
from app.domain.messages import Message
from app.domain.overrides import OverridesChange
from app.domain.turn import Caller, Pause, ResultsInput, StreamStatus, TurnInput
from app.domain.views import (
    ConversationView,
    Cursor,
    MessageView,
    OverridesView,
    Page,
    PartialResults,
    PersonaView,
    PromptsView,
    SkillView,
    SpendingView,
    Started,
    StreamView,
    TraceEntryView,
    TraitsView,
)

STARTED = Started("st_1", "chat-1", "turn_1", 7)
PARTIAL = PartialResults("pause_1", ("call_1",), ("call_2",))
PAUSE = Pause(
    pause_id="pause_1",
    stream_id="st_1",
    conversation_id="chat-1",
    session_id="chat-1",
    user_id="local",
    persona_id="demo",
    turn_id="turn_1",
    tool_calls=({"id": "call_1", "name": "get_weather", "arguments": {"city": "Berlin"}, "kind": "tool"},),
    rationale="because",
    requested_at="2026-11-30T11:00:00.000Z",
)
STATE = StreamView("st_1", "chat-1", "turn_1", StreamStatus.PAUSED, None, PAUSE.to_json(), None, None, "7-2")
CONVERSATION = ConversationView("chat-1", "local", "chat-1", None, None, {}, "t0", "t1", 0, None, None)
PERSONA = PersonaView("demo", "Demo", "A script.", "scripted:demo", ("current_time",), is_default=True)
SKILL = SkillView("tidy", "Tidies up.", "home", None)
OVERRIDES = OverridesView("s-1", {"temperature": 0.2}, {"verbosity": "low"}, ("tidy",), (), 1)
TRAITS = TraitsView("s-1", "demo", {"patience": 0.9, "humor": 0.3}, ("patience",))
TRACE_ENTRY = TraceEntryView(
    7, "t0", "llm_call_start", "Step 1 asks scripted:demo.", None, {"step": 0}, "chat-1", "st_1", "turn_1", "demo"
)
FRAMES = (
    b': ok\n\nid: 7-1\nevent: text_delta\ndata: {"type":"text_delta","text_delta":"h\xc3\xa9"}\n\n',
    b": ping\n\n",
    b'id: 7-2\nevent: end\ndata: {"status":"paused","last":2}\n\n',
)

Frames = Callable[[], AsyncIterator[bytes]]


async def given_frames() -> AsyncIterator[bytes]:
    for frame in FRAMES:
        yield frame


class FakeRuntime:
    """The shape of the runtime. `refuses` is raised by every call; `frames` is what streams say.

    Documents, memories and users have no fake: their tests use a real runtime.
    """

    documents: DocumentDesk
    memories: MemoryDesk
    users: UserDesk

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.callers: list[Caller] = []
        self.refuses: Exception | None = None
        self.frames: Frames = given_frames
        self.waits: asyncio.Event | None = None
        self.ended: list[Started] = []
        self.nothing_follows = False
        self.replayed = False
        self.pause: Pause | None = PAUSE
        self.checks = {"database": True}
        self.counts: bytes | None = None

    def _ask(self, caller: Caller, what: Any) -> None:
        self.callers.append(caller)
        self.asked.append(what)
        if self.refuses is not None:
            raise self.refuses

    def metrics(self) -> bytes | None:
        return self.counts

    async def readiness(self) -> dict[str, bool]:
        return self.checks

    async def start_turn(self, turn: TurnInput, on_wait: Callable[[], None] | None = None) -> Started:
        self._ask(turn.caller, turn)
        if self.waits is not None and on_wait is not None:
            on_wait()
            await self.waits.wait()
            self._ask(turn.caller, turn)
        return Started("st_1", turn.conversation_id, "turn_1", 7, replayed=self.replayed)

    async def pass_results(self, results: ResultsInput) -> Started | PartialResults:
        self._ask(results.caller, results)
        return PARTIAL if results.partial else STARTED

    async def resume(self, results: ResultsInput) -> Started | PartialResults:
        self._ask(results.caller, results)
        return PARTIAL if results.partial else STARTED

    def cancel_operation(self, started: Started) -> None:
        self.ended.append(started)

    async def cancel(self, caller: Caller, stream_id: str) -> str:
        self._ask(caller, stream_id)
        return "cancelling"

    async def open_operation(self, started: Started, after: Cursor | None) -> AsyncIterator[bytes]:
        self.asked.append((started, after))
        return self.frames()

    async def open_events(
        self, caller: Caller, stream_id: str, after: Cursor | None, *, follow: bool
    ) -> AsyncIterator[bytes] | None:
        self._ask(caller, (stream_id, after, follow))
        return None if self.nothing_follows else self.frames()

    async def stream_state(self, caller: Caller, stream_id: str) -> StreamView:
        self._ask(caller, stream_id)
        return STATE

    async def stream_usage(self, caller: Caller, stream_id: str) -> SpendingView:
        self._ask(caller, stream_id)
        return SpendingView("chat-1", (), None, stream_id=stream_id)

    async def stream_prompts(self, caller: Caller, stream_id: str) -> PromptsView:
        self._ask(caller, stream_id)
        return PromptsView(stream_id, "chat-1", ())

    async def conversation_usage(self, caller: Caller, conversation_id: str) -> SpendingView:
        self._ask(caller, conversation_id)
        return SpendingView(conversation_id, (), None)

    async def pending_request(self, caller: Caller, conversation_id: str) -> Pause | None:
        self._ask(caller, conversation_id)
        return self.pause

    async def pending_requests(self, caller: Caller, cursor: str | None, limit: int) -> Page[Pause]:
        self._ask(caller, (cursor, limit))
        return Page((PAUSE,), "next")

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
        self._ask(caller, (conversation_id, session_id, persona_id, title, metadata, messages))
        return CONVERSATION

    async def list_conversations(self, caller: Caller, cursor: str | None, limit: int) -> Page[ConversationView]:
        self._ask(caller, (cursor, limit))
        return Page((CONVERSATION,), None)

    async def get_conversation(self, caller: Caller, conversation_id: str) -> ConversationView:
        self._ask(caller, conversation_id)
        if conversation_id != CONVERSATION.conversation_id:
            raise NotFoundError
        return CONVERSATION

    async def update_conversation(
        self, caller: Caller, conversation_id: str, *, title: str | None, metadata: Mapping[str, Any] | None
    ) -> ConversationView:
        self._ask(caller, (conversation_id, title, metadata))
        return CONVERSATION

    async def delete_conversation(self, caller: Caller, conversation_id: str) -> None:
        self._ask(caller, conversation_id)

    async def list_messages(
        self, caller: Caller, conversation_id: str, *, cursor: str | None, limit: int, descending: bool
    ) -> Page[MessageView]:
        self._ask(caller, (conversation_id, cursor, limit, descending))
        return Page((), None)

    async def session_trace(
        self, caller: Caller, session_id: str, *, cursor: str | None, limit: int, descending: bool
    ) -> Page[TraceEntryView]:
        self._ask(caller, (session_id, cursor, limit, descending))
        return Page((TRACE_ENTRY,), "7")

    def skills(self) -> tuple[SkillView, ...]:
        return (SKILL,)

    async def session_overrides(self, caller: Caller, session_id: str) -> OverridesView:
        self._ask(caller, session_id)
        return OVERRIDES

    async def change_session_overrides(self, caller: Caller, session_id: str, change: OverridesChange) -> OverridesView:
        self._ask(caller, (session_id, change))
        return OVERRIDES

    async def reset_session_overrides(self, caller: Caller, session_id: str) -> None:
        self._ask(caller, session_id)

    async def session_traits(self, caller: Caller, session_id: str, persona_id: str | None) -> TraitsView:
        self._ask(caller, (session_id, persona_id))
        return TRAITS

    async def change_session_traits(
        self, caller: Caller, session_id: str, persona_id: str | None, given: Mapping[str, float | None]
    ) -> TraitsView:
        self._ask(caller, (session_id, persona_id, given))
        return TRAITS

    def personas(self) -> tuple[PersonaView, ...]:
        return (PERSONA,)

    def persona(self, persona_id: str) -> PersonaView:
        if persona_id != PERSONA.persona_id:
            raise PersonaNotFoundError
        return PERSONA
