"""What a runtime tool is."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from app.domain.frozen import dataclass
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


@dataclass(frozen=True, slots=True)
class ToolRules:
    """What holds for one tool where it differs from the runtime's own: seconds, and bytes of its output as JSON.

    A tool with `requires_approval` is run only after a person said so, and one with `required_capabilities` only for a
    persona that has them all. What a tool with an `output_schema` gives has to fit it.
    """

    timeout: float | None = None
    max_output_bytes: int | None = None
    requires_approval: bool = False
    required_capabilities: frozenset[str] = frozenset()
    output_schema: Mapping[str, Any] | None = None


DEFAULT_RULES: Final = ToolRules()


class Tool(Protocol):
    """A tool that the runtime runs. `execute` gives any JSON value; what it raises becomes an error result.

    A tool may have `rules` of its own (`ToolRules`).
    """

    spec: ToolSpec

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Run the tool."""
        ...


class ToolError(Exception):
    """A failure whose message the model may read."""
