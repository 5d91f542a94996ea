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


@dataclass(frozen=True, slots=True)
class Approval:
    """What a person says to a call that the service runs only then.

    `arguments` take the place of the model's, `reason` is told to the model when it is a refusal, and `approved_by`
    says who decided, where that is not the connection's own user.
    """

    approved: bool
    arguments: Mapping[str, Any] | None = None
    reason: str | None = None
    approved_by: str | None = None

    def told(self) -> dict[str, Any]:
        """Give what a result's body says of it."""
        shown = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in shown.items() if value is not None}


Approve = Callable[[Mapping[str, Any]], Awaitable[Approval]]
"""Decides on a call, which has `id`, `name` and `arguments`."""


async def deny(call: Mapping[str, Any]) -> Approval:
    """Refuse: where nobody was asked, nobody has agreed."""
    return Approval(approved=False, reason=f"Nobody was there to agree to {call['name']}.")


class ToolMissingError(Exception):
    """A request names a tool that the host does not have; nothing was run, and the pause stays."""


async def run_turn_with_tools(
    connection: Connection,
    conversation_id: str,
    turn: Mapping[str, Any],
    tools: Sequence[HostTool],
    *,
    approve: Approve = deny,
) -> AsyncIterator[Event]:
    """Run a turn, and every tool call that its requests name, at any depth; give all events, the last `end` last.

    Calls of one request run one after another, in order, and are answered together; `approve` is asked about those that
    the service runs itself once a person has agreed. What a tool or `approve` raises ends the iterator with that error,
    and the pause stays: its calls can be answered later.
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
        results = await _answers(by_name, approve, request.data["tool_calls"])
        events = connection.pass_results(request.data["stream_id"], results, pause_id=request.data["pause_id"])


async def _answers(
    tools: Mapping[str, HostTool], approve: Approve, calls: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    missing = [call["name"] for call in calls if not _waits_for_a_person(call) and call["name"] not in tools]
    if missing:
        message = f"The host has no tool named {missing[0]!r}."
        raise ToolMissingError(message)
    answers: list[dict[str, Any]] = []
    for call in calls:
        answer: dict[str, Any] = {"tool_call_id": call["id"]}
        if _waits_for_a_person(call):
            answer["approval"] = (await approve(call)).told()
        else:
            answer["output"] = await tools[call["name"]].run(**call["arguments"])
        answers.append(answer)
    return answers


def _waits_for_a_person(call: Mapping[str, Any]) -> bool:
    return call.get("kind") == "approval"
