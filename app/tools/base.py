"""What a runtime tool is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from app.domain.tools import ToolSpec
from app.domain.turn import Caller


@dataclass(frozen=True, slots=True)
class ToolContext:
    """For whom a tool runs."""

    caller: Caller
    conversation_id: str
    session_id: str
    persona_id: str
    turn_id: str


class Tool(Protocol):
    """A tool that the runtime runs. `execute` gives any JSON value; what it raises becomes an error result."""

    spec: ToolSpec

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Run the tool."""
        ...


class ToolError(Exception):
    """A failure whose message the model may read."""
