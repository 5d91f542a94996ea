"""A GMI that plays what a test gives it, so that outputs can be tried that the runtime's own never makes."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from app.domain.chunks import FinalResponseMarker, GmiChunk, GmiOutput
from app.domain.messages import Message, ToolCall
from app.domain.turn import Caller
from app.providers.gateway import Gateway
from app.providers.registry import ProviderRegistry
from app.tools.executor import ToolExecutor
from app.tools.registry import ToolRegistry
from app.turn.gmi.base import Gmi, GmiTurnInput
from app.turn.gmi.manager import GmiManager

Act = Sequence[GmiChunk | GmiOutput]


class Playing(GmiManager):
    """Gives one GMI that plays an act for each turn; `asked` are the turns, `acquired` the personas asked for."""

    def __init__(self, *acts: Act) -> None:
        super().__init__(Gateway(ProviderRegistry([])), ToolExecutor(ToolRegistry([]), timeout=1))
        self.instance_id = "gmi_playing"
        self.acts = list(acts)
        self.asked: list[GmiTurnInput] = []
        self.acquired: list[str] = []

    async def acquire(self, caller: Caller, session_id: str, persona_id: str) -> Gmi:  # noqa: ARG002 - one GMI for all
        self.acquired.append(persona_id)
        return self

    async def process_turn_stream(self, turn: GmiTurnInput) -> AsyncIterator[GmiChunk | GmiOutput]:
        self.asked.append(turn)
        *chunks, last = self.acts.pop(0)
        assert isinstance(last, GmiOutput), "an act ends with its output"
        for chunk in chunks:
            yield chunk
        yield FinalResponseMarker()
        yield with_history(last, turn)


def with_history(output: GmiOutput, turn: GmiTurnInput) -> GmiOutput:
    """Give the output the history that a GMI keeps: what it was told, and what it answered."""
    answer = Message("assistant", output.response_text, tool_calls=output.tool_calls)
    return replace(output, history=(*turn.messages, answer))


def asks(call_id: str, name: str = "get_weather") -> ToolCall:
    """Make a call."""
    return ToolCall(call_id, name, {"city": "Berlin"})


def stop(*call_ids: str, text: str | None = None) -> GmiOutput:
    """Make the output of a turn that stops for its host."""
    return GmiOutput(is_final=False, response_text=text, tool_calls=tuple(asks(call_id) for call_id in call_ids))


def end(text: str | None = "Done.", *call_ids: str) -> GmiOutput:
    """Make final output; the calls are those that it lists as its own."""
    return GmiOutput(is_final=True, response_text=text, tool_calls=tuple(asks(call_id) for call_id in call_ids))
