"""Runs a turn with a host's own tools: whatever the model asks for is run here, until there is an answer."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from app.client.connection import Connection
from app.client.events import Event


@dataclass(frozen=True, slots=True)
class HostTool:
    """A tool of the host: what the model is told, and the function that runs it with the call's arguments."""

    name: str
    run: Callable[..., Awaitable[Any]]
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})

    def told(self) -> dict[str, Any]:
        """Give what a turn's body says of it."""
        return {"name": self.name, "description": self.description, "input_schema": dict(self.input_schema)}


class ToolMissingError(Exception):
    """A request names a tool that the host does not have; nothing was run, and the pause stays."""


async def run_turn_with_tools(
    connection: Connection, conversation_id: str, turn: Mapping[str, Any], tools: Sequence[HostTool]
) -> AsyncIterator[Event]:
    """Run a turn, and every tool call that its requests name, at any depth; give all events, the last `end` last.

    Calls of one request run one after another, in order, and are answered together. What a tool raises ends the
    iterator with that error, and the pause stays: its calls can be answered later.
    """
    by_name = {tool.name: tool for tool in tools}
    offered = {**turn, "tools": [*turn.get("tools", []), *(tool.told() for tool in tools)]}
    events = connection.run_turn(conversation_id, offered)
    while True:
        request: Event | None = None
        async with aclosing(events) as reading:  # type: ignore[type-var]
            async for event in reading:
                if event.type == "tool_call_request" and event.data.get("requires_external_tool_result") is True:
                    request = event
                yield event
        if request is None:
            return
        results = await _run(by_name, request.data["tool_calls"])
        events = connection.pass_results(request.data["stream_id"], results, pause_id=request.data["pause_id"])


async def _run(tools: Mapping[str, HostTool], calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    missing = [call["name"] for call in calls if call["name"] not in tools]
    if missing:
        message = f"The host has no tool named {missing[0]!r}."
        raise ToolMissingError(message)
    return [
        {"tool_call_id": call["id"], "output": await tools[call["name"]].run(**call["arguments"])} for call in calls
    ]
