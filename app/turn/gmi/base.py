"""What a GMI is given, and what a GMI is. A host may bring its own by offering the same two methods."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from app.conversation.budget import Room
from app.domain.chunks import GmiChunk, GmiOutput
from app.domain.documents import FoundChunk
from app.domain.feedback import Feedback
from app.domain.frozen import dataclass
from app.domain.messages import Message, ToolCall
from app.domain.persona import Persona
from app.domain.tools import ToolResult, ToolSpec
from app.domain.turn import Caller, PauseTerms, TurnOptions
from app.domain.usage import Hop, ModelCall, Usage
from app.tools.base import ToolContext
from app.turn.gmi.session import Session


async def _nothing(*_: object) -> None:
    """Do nothing: whoever brings no rule of its own has none."""


def _unheard(_: ModelCall) -> None:
    """Do nothing: whoever keeps no ledger is told nothing."""


@dataclass(frozen=True, slots=True)
class GmiTurnInput:
    """One turn, or the rest of one after a pause.

    `messages` are sent as they are: system first, the user's input or the results last. `before_step` is awaited before
    each model request, `before_effect` before each round of runtime tools, `after_round` with the calls of a round and
    their results; what they raise ends the turn. `usage_before` is what earlier operations of the turn used.
    `approved` are calls of the last assistant message that a person has agreed to: they are run before the first step.
    `hop` is the model that served the turn before its pause; no earlier one of the route is asked. `on_call` is told of
    each attempt at a model request. A request that does not fit into `room` is not sent. `session` is what the turn's
    session keeps; what the GMI changes and notes there is stored with the outcome. `prompt` is the prompt's report.
    `feedback` is what the user says of an earlier answer; it is in the trace already.
    `look_up` finds passages for a text; it is there where the persona has documents looked in when a tool fails.
    """

    persona: Persona
    model: str
    messages: tuple[Message, ...]
    runtime_tools: tuple[ToolSpec, ...]
    host_tools: tuple[ToolSpec, ...]
    options: TurnOptions
    context: ToolContext
    before_effect: Callable[[], Awaitable[None]]
    max_iterations: int
    tool_concurrency: int = 10
    approved: tuple[ToolCall, ...] = ()
    before_step: Callable[[], Awaitable[None]] = _nothing
    after_round: Callable[[Sequence[ToolCall], Sequence[ToolResult]], Awaitable[None]] = _nothing
    sources: tuple[Mapping[str, object], ...] = ()
    usage_before: Usage = Usage()
    terms: PauseTerms = field(default_factory=PauseTerms)
    hop: Hop | None = None
    on_call: Callable[[ModelCall], None] = _unheard
    room: Room | None = None
    session: Session = field(default_factory=Session)
    prompt: Mapping[str, Any] = field(default_factory=dict)
    feedback: Feedback | None = None
    look_up: Callable[[str], Awaitable[Sequence[FoundChunk]]] | None = None
    provider_api_keys: Mapping[str, str] = field(default_factory=dict, repr=False)


class Gmi(Protocol):
    """An agent of a session. It keeps no conversation's messages between operations.

    One that has an attribute `takes_results_together` which is false goes on with one result of its host alone: it is
    told neither further results nor stand-ins (R102).
    """

    instance_id: str

    def process_turn_stream(self, turn: GmiTurnInput) -> AsyncIterator[GmiChunk | GmiOutput]:
        """Yield chunks, the marker last of them, and then exactly one `GmiOutput`. Does not raise for a failed turn."""
        ...


class Gmis(Protocol):
    """Gives out GMIs. A host that brings its own may use `LiveGmis`, whose GMIs remember."""

    async def acquire(self, caller: Caller, session_id: str, persona_id: str) -> Gmi:
        """Give the session's GMI for the persona."""
        ...

    async def close(self) -> None:
        """Give back what GMIs hold, when the runtime stops."""
        ...


def takes_results_together(gmi: Gmi) -> bool:
    """Tell whether a GMI can be told all answers of a pause at once, as the runtime's own can (R99)."""
    return bool(getattr(gmi, "takes_results_together", True))
