"""One GMI with scripted models and tools, and what it yields, chunk by chunk."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.domain.chunks import (
    FinalResponseMarker,
    GmiChunk,
    GmiError,
    GmiOutput,
    SourcesAvailable,
    StepFinished,
    TextDelta,
    ToolCallRequest,
    ToolResultRecorded,
    UsageUpdate,
)
from app.domain.errors import ProviderError
from app.domain.messages import Message, ToolCall
from app.domain.persona import Persona
from app.domain.tools import ToolResult, ToolSpec
from app.domain.turn import Caller, TurnOptions
from app.domain.usage import ModelCall, Usage
from app.providers.errors import failure
from app.providers.gateway import Gateway, GatewayPolicy
from app.providers.registry import ProviderRegistry
from app.providers.scripted import ScriptedProvider, Step
from app.tools.base import Tool, ToolContext, ToolError, ToolRules
from app.tools.executor import ToolExecutor
from app.tools.registry import ToolRegistry
from app.turn.gmi.base import GmiTurnInput
from app.turn.gmi.instance import RuntimeGmi

PATIENCE = 30.0
HOST_TOOL = ToolSpec("get_weather", "Tell the weather")
LETTERS: Mapping[type[Any], str] = {
    SourcesAvailable: "sources",
    TextDelta: "T",
    ToolCallRequest: "C",
    UsageUpdate: "U",
    StepFinished: "S",
    ToolResultRecorded: "R",
    GmiError: "error",
    FinalResponseMarker: "M",
}


@dataclass(slots=True)
class Echo:
    """A tool that gives back its arguments, fails as told, or waits until it is let go."""

    name: str = "echo"
    fails: str | None = None
    gate: asyncio.Event | None = None
    rules: ToolRules = field(default_factory=ToolRules)
    ran: list[Mapping[str, Any]] = field(default_factory=list)
    active: int = 0
    most_active: int = 0
    spec: ToolSpec = field(init=False)
    _begun: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.spec = ToolSpec(self.name, "Gives back what it is given")

    async def until_begun(self, times: int) -> None:
        """Wait until the tool has been begun so many times."""
        async with asyncio.timeout(PATIENCE):
            while len(self.ran) < times:
                self._begun.clear()
                await self._begun.wait()

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:  # noqa: ARG002 - needs none
        self.ran.append(arguments)
        self._begun.set()
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.fails is not None:
                raise ToolError(self.fails)
        finally:
            self.active -= 1
        return dict(arguments)


class Rig:
    """A GMI over the providers `one` and `two`. `calls` is the ledger, `rounds` what was journalled."""

    def __init__(
        self, one: Sequence[Step] = (), two: Sequence[Step] = (), tools: Sequence[Tool] = (), **policy: Any
    ) -> None:
        self.one = ScriptedProvider(one, name="one")
        self.two = ScriptedProvider(two, name="two")
        self.calls: list[ModelCall] = []
        self.rounds: list[tuple[list[ToolCall], list[ToolResult]]] = []
        self.tools = ToolRegistry(tools)
        gateway = Gateway(ProviderRegistry([self.one, self.two]), GatewayPolicy(**{"attempts": 1, **policy}))
        self.gmi = RuntimeGmi("gmi-1", gateway, ToolExecutor(self.tools, timeout=5, max_output_bytes=1000))

    def turn(self, **more: Any) -> GmiTurnInput:
        async def no_effect() -> None:
            return None

        async def after_round(calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> None:
            self.rounds.append((list(calls), list(results)))

        given: dict[str, Any] = {
            "persona": Persona("p", "P", "Be brief."),
            "model": "one:m1",
            "messages": (Message("system", "Be brief."), Message("user", "hi")),
            "runtime_tools": self.tools.specs(sorted(self.tools.names)),
            "host_tools": (),
            "options": TurnOptions(),
            "context": ToolContext(Caller("ada"), "chat-1", "chat-1", "p", "turn-1"),
            "before_effect": no_effect,
            "after_round": after_round,
            "max_iterations": 5,
            "on_call": self.calls.append,
        }
        return GmiTurnInput(**{**given, **more})

    async def run(self, **more: Any) -> tuple[list[GmiChunk], GmiOutput]:
        """Run a turn and give its chunks and its output."""
        items = [item async for item in self.gmi.process_turn_stream(self.turn(**more))]
        output = items.pop()
        assert isinstance(output, GmiOutput)
        return [item for item in items if not isinstance(item, GmiOutput)], output


def letters(chunks: Sequence[GmiChunk]) -> str:
    """Give the chunks as the worked sequences write them; `U!` is the bill of a failed attempt."""
    return " ".join(
        "U!" if isinstance(chunk, UsageUpdate) and chunk.attempt_failed else LETTERS[type(chunk)] for chunk in chunks
    )


def broken(reason: str = "invalid_request", usage: Usage | None = None, message: str = "It broke.") -> ProviderError:
    """Make a provider's failure."""
    error = failure(reason, "one", message)
    error.usage = usage
    return error
