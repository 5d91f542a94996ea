"""What operations share in one process. Built in `app.bootstrap`, passed down, never global."""

from dataclasses import field

from app.conversation.tokens import TokenCounters
from app.domain.clock import Clock
from app.domain.frozen import dataclass
from app.domain.policy import TurnPolicy
from app.guardrails.registry import Guards
from app.memory.library import Library
from app.memory.longterm import LongTermMemory
from app.observability.metrics import Metrics
from app.providers.gateway import Gateway
from app.store.database import Database
from app.streaming.log import LogWriter
from app.streaming.manager import StreamingManager
from app.streaming.ring import Rings
from app.streaming.wakeups import Wakeups
from app.tools.executor import ToolExecutor
from app.turn.delivery.plain_text import PlainText
from app.turn.gmi.base import Gmis
from app.turn.gmi.personas import Personas
from app.turn.orchestrator.background import Background
from app.turn.orchestrator.cancels import Cancels
from app.turn.orchestrator.lease import Lease
from app.turn.preparation.aids import Aids


@dataclass(frozen=True, slots=True)
class Services:
    """The parts that an operation needs. `secrets` are values that nobody is to read anywhere."""

    database: Database
    rings: Rings
    log: LogWriter
    wakeups: Wakeups
    streaming: StreamingManager
    lease: Lease
    cancels: Cancels
    clock: Clock
    gateway: Gateway
    personas: Personas
    gmis: Gmis
    tools: ToolExecutor
    counters: TokenCounters
    plain_text: PlainText
    guards: Guards
    library: Library
    memories: LongTermMemory
    policy: TurnPolicy
    aids: Aids
    background: Background = field(default_factory=Background)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    metrics: Metrics = field(default_factory=Metrics)
