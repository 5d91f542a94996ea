"""What the door asks of the runtime: the facade's public face, as a protocol.

The door knows nothing else of what lies behind it, and its tests can put anything of this shape there.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

from app.api.desks import DocumentDesk, MemoryDesk, UserDesk
from app.domain.messages import Message
from app.domain.overrides import OverridesChange
from app.domain.turn import Caller, Pause, ResultsInput, TurnInput
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


class Runtime(Protocol):
    """Every method raises AppError for what it refuses; an iterator of frames raises when it can't be finished."""

    @property
    def documents(self) -> DocumentDesk:
        """Where documents are taken in and found."""
        ...

    @property
    def memories(self) -> MemoryDesk:
        """Where users see what is remembered of them."""
        ...

    @property
    def users(self) -> UserDesk:
        """Where users are erased."""
        ...

    def metrics(self) -> bytes | None:
        """Give the counts of this process in Prometheus's text format; None when nothing is counted."""
        ...

    async def readiness(self) -> dict[str, bool]:
        """Give the checks that must all hold before turns are sent here."""
        ...

    async def start_turn(self, turn: TurnInput, on_wait: Callable[[], None] | None = None) -> Started:
        """Accept a turn; `on_wait` is called when that is going to last, since the turn waits for others."""
        ...

    async def pass_results(self, results: ResultsInput) -> Started | PartialResults:
        """Accept results on the stream of their pause; partial ones may leave it waiting."""
        ...

    async def resume(self, results: ResultsInput) -> Started | PartialResults:
        """Accept results for a named pause, onto a new stream."""
        ...

    async def cancel(self, caller: Caller, stream_id: str) -> str:
        """End what runs on a stream, or the pause it holds: `cancelling`, `cancelled` or `already_ended`."""
        ...

    async def open_operation(self, started: Started, after: Cursor | None) -> AsyncIterator[bytes]:
        """Give an operation's frames, from its first (or the cursor) to its `end`; items are whole frames."""
        ...

    def cancel_operation(self, started: Started) -> None:
        """End the operation soon, if it still runs in this process; a pause that it has come to stays."""
        ...

    async def open_events(
        self, caller: Caller, stream_id: str, after: Cursor | None, *, follow: bool
    ) -> AsyncIterator[bytes] | None:
        """Give a stream's frames after a cursor; None when nothing follows and nothing will."""
        ...

    async def stream_state(self, caller: Caller, stream_id: str) -> StreamView:
        """Tell what a stream does or how it ended."""
        ...

    async def stream_usage(self, caller: Caller, stream_id: str) -> SpendingView:
        """Tell what a stream has used."""
        ...

    async def stream_prompts(self, caller: Caller, stream_id: str) -> PromptsView:
        """Tell what the models of a stream were told."""
        ...

    async def conversation_usage(self, caller: Caller, conversation_id: str) -> SpendingView:
        """Tell what a conversation has used."""
        ...

    async def pending_request(self, caller: Caller, conversation_id: str) -> Pause | None:
        """Give the pause that a conversation holds."""
        ...

    async def pending_requests(self, caller: Caller, cursor: str | None, limit: int) -> Page[Pause]:
        """List the pauses that wait for this caller."""
        ...

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
        ...

    async def list_conversations(self, caller: Caller, cursor: str | None, limit: int) -> Page[ConversationView]:
        """List a caller's conversations, the last changed first."""
        ...

    async def get_conversation(self, caller: Caller, conversation_id: str) -> ConversationView:
        """Give a conversation."""
        ...

    async def update_conversation(
        self, caller: Caller, conversation_id: str, *, title: str | None, metadata: Mapping[str, Any] | None
    ) -> ConversationView:
        """Change what is not None."""
        ...

    async def delete_conversation(self, caller: Caller, conversation_id: str) -> None:
        """Erase a conversation with all that belongs to it."""
        ...

    async def list_messages(
        self, caller: Caller, conversation_id: str, *, cursor: str | None, limit: int, descending: bool
    ) -> Page[MessageView]:
        """List a conversation's messages by position."""
        ...

    async def session_trace(
        self, caller: Caller, session_id: str, *, cursor: str | None, limit: int, descending: bool
    ) -> Page[TraceEntryView]:
        """List the entries of a session's reasoning trace."""
        ...

    def skills(self) -> tuple[SkillView, ...]:
        """Give all skills."""
        ...

    async def session_overrides(self, caller: Caller, session_id: str) -> OverridesView:
        """Give what a session changes about its turns."""
        ...

    async def change_session_overrides(self, caller: Caller, session_id: str, change: OverridesChange) -> OverridesView:
        """Change what a session changes about its turns."""
        ...

    async def reset_session_overrides(self, caller: Caller, session_id: str) -> None:
        """Take a session's overrides back."""
        ...

    async def session_traits(self, caller: Caller, session_id: str, persona_id: str | None) -> TraitsView:
        """Give a persona's traits as a session has them; None is the default persona."""
        ...

    async def change_session_traits(
        self, caller: Caller, session_id: str, persona_id: str | None, given: Mapping[str, float | None]
    ) -> TraitsView:
        """Change a persona's traits for a session; a null takes one back."""
        ...

    def personas(self) -> tuple[PersonaView, ...]:
        """Give all personas."""
        ...

    def persona(self, persona_id: str) -> PersonaView:
        """Give one persona."""
        ...
