"""What the phases fill in, and what comes of it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field, replace
from typing import Any, Protocol
from uuid import UUID

from app.conversation.budget import Room
from app.conversation.history import Summary
from app.conversation.tokens import TokenCounters
from app.domain.chunks import StreamChunk
from app.domain.clock import Clock
from app.domain.documents import FoundChunk
from app.domain.errors import ValidationError
from app.domain.frozen import dataclass
from app.domain.memory import Recalled
from app.domain.memory_policy import MemoryPolicy, NewSummary
from app.domain.messages import Message
from app.domain.persona import Persona
from app.domain.planning import Plan
from app.domain.policy import HistoryPolicy, TurnPolicy
from app.domain.session import SessionKey, SessionState
from app.domain.tools import FailureMode, ToolSpec
from app.domain.turn import TurnInput
from app.domain.usage import ModelCall, Usage
from app.memory.library import Library
from app.memory.longterm import LongTermMemory
from app.observability.metrics import Metrics
from app.prompts.engine import Prompt
from app.prompts.slots import Slots
from app.providers.gateway import Gateway
from app.store.database import Connection, Database
from app.store.messages import NewMessage
from app.store.starts import Start
from app.tools.registry import ToolRegistry
from app.turn.gmi.base import Gmi, Gmis
from app.turn.gmi.personas import Personas
from app.turn.preparation.aids import Aids

Store = Callable[[Connection, int, bool], Awaitable[None]]
"""What is stored in T1 besides, under the fence; told whether no pause was held, and so the input stored already."""


class Accept(Protocol):
    """T1 with the input's message and the turn as it is kept for a takeover; it gives the fence.

    `alone` says that `store` has nothing to do where no pause is held; then it may not be called.
    """

    async def __call__(self, store: Store, new: NewMessage, payload: dict[str, Any], *, alone: bool) -> int: ...


Verdict = Callable[[], Awaitable[TurnInput]]
"""Waits for the guardrails' word on the input and gives the turn as it may be accepted; raises what refuses it."""


@dataclass(frozen=True, slots=True)
class PhaseServices:
    """What a phase may use. `emit` puts a chunk on the stream; `accept` is T1.

    `before_call` is awaited before a model is asked, and `on_call` is told of each attempt.
    """

    database: Database
    clock: Clock
    personas: Personas
    gmis: Gmis
    gateway: Gateway
    before_call: Callable[[], Awaitable[None]]
    on_call: Callable[[ModelCall], None]
    tools: ToolRegistry
    counters: TokenCounters
    policy: TurnPolicy
    aids: Aids
    emit: Callable[[StreamChunk], None]
    wake: Callable[[str], None]
    name: Callable[[str, Persona], None]
    accept: Accept
    metrics: Metrics
    library: Library
    memories: LongTermMemory


@dataclass(slots=True)
class TurnDraft:
    """A turn while it is prepared; each phase adds its part.

    `conversation` is its row key, `fence` T1's, `usage` what preparing it has used.
    `slots` are what phases have found for the prompt, and `prompt` is what phase 12 makes of them. `kept` is what the
    conversation keeps of earlier turns' preparation, and `keeps` what it is to keep of this one.
    `mind` is what the turn changes in that part of its session, and `signals` are the events that were noticed.
    `sources` are the passages among the slots, `warnings` what the session's trace is to tell of what failed.
    """

    turn: TurnInput
    conversation: UUID
    stream_id: str
    turn_id: str
    persona: Persona | None = None
    gmi: Gmi | None = None
    model: str = ""
    input: NewMessage | None = None
    runtime_tools: tuple[ToolSpec, ...] = ()
    host_tools: tuple[ToolSpec, ...] = ()
    plan: Plan | None = None
    degraded: bool = False
    memory_policy: MemoryPolicy | None = None
    compacted: bool = False
    new_summary: NewSummary | None = None
    recalled: tuple[Recalled, ...] = ()
    warnings: tuple[str, ...] = ()
    kept: Mapping[str, Any] | None = None
    keeps: dict[str, Any] = field(default_factory=dict)
    fence: int = 0
    summary: Summary | None = None
    history: tuple[Message, ...] = ()
    usage: Usage = Usage()
    room: Room | None = None
    session: SessionState = field(default_factory=SessionState)
    slots: Slots = field(default_factory=Slots)
    mind: dict[str, Any] = field(default_factory=dict)
    signals: frozenset[str] = frozenset()
    prompt: Prompt | None = None
    sources: tuple[FoundChunk, ...] = ()
    routing: dict[str, Any] = field(default_factory=dict)
    verdict: Verdict | None = None
    start: Start | None = None

    async def judged(self) -> None:
        """Wait until the input may be used: before a model is told of it, and before it is stored."""
        if self.verdict is None:
            return
        self.turn, self.verdict = await self.verdict(), None
        if not self.turn.input or (isinstance(self.turn.input, str) and not self.turn.input.strip()):
            message = "A guardrail has left nothing of the input; send another one."
            raise ValidationError(message)
        if self.input is not None:
            self.input = replace(self.input, message=replace(self.input.message, content=self.turn.input))

    @property
    def mode(self) -> str:
        """The turn's mode: as its options say, else its flag, else the persona's id."""
        options = self.turn.options
        return str(options.mode or options.custom_flags.get("mode") or "").strip() or self.chosen()[0].id

    @property
    def session_key(self) -> SessionKey:
        """The turn's session."""
        return SessionKey.of(self.turn.caller, self.turn.session_id)

    def history_policy(self, policy: TurnPolicy) -> HistoryPolicy:
        """Give what of the conversation is told: as many messages as the persona says, else the settings (R309)."""
        own = self.chosen()[0].conversation_context.max_messages
        return policy.history if own is None else replace(policy.history, limit=own)

    def chosen(self) -> tuple[Persona, Gmi, NewMessage]:
        """Give what phases 2 and 4 chose; a later phase that runs without them is a fault of the pipeline."""
        if self.persona is None or self.gmi is None or self.input is None:
            message = "phases 2 and 4 must run first"
            raise RuntimeError(message)
        return self.persona, self.gmi, self.input


@dataclass(frozen=True, slots=True)
class PreparedTurn:
    """What stage 4 needs: who answers, with what, what the user said, and the messages it is told, in order.

    `failure_mode` is the plan's word on tools that fail; without a plan there is none. `degraded` tells that the plan
    is not the one that was wanted. `prompt` is the prompt's report. `recalled` is what the prompt tells of long-term
    memory, where that wants to know what came of it; `new_summary` is one that long-term memory may keep.
    """

    persona: Persona
    gmi: Gmi
    model: str
    messages: tuple[Message, ...]
    runtime_tools: tuple[ToolSpec, ...]
    host_tools: tuple[ToolSpec, ...]
    usage: Usage = Usage()
    room: Room | None = None
    session: SessionState = field(default_factory=SessionState)
    failure_mode: FailureMode | None = None
    degraded: bool = False
    keeps: Mapping[str, Any] = field(default_factory=dict)
    prompt: Mapping[str, Any] = field(default_factory=dict)
    mind: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[Mapping[str, Any], ...] = ()
    said: str = ""
    sentiment: float = 0.0
    recalled: tuple[Recalled, ...] = ()
    warnings: tuple[str, ...] = ()
    new_summary: NewSummary | None = None
