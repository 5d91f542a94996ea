"""A runtime in the test's own process, on a real database, whose models follow a script."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from app.bootstrap import build
from app.domain.messages import Message
from app.domain.tools import ToolResult, ToolSpec
from app.domain.turn import Caller, Pause, TurnInput, TurnOptions
from app.domain.views import MessageView
from app.guardrails.registry import Guards
from app.memory.longterm import LongTermMemory
from app.providers.base import ModelRequest
from app.providers.registry import ProviderRegistry
from app.providers.scripted import ScriptedProvider
from app.settings import Settings
from app.tools.base import Tool
from app.turn.facade.host import Chunk, Host
from app.turn.facade.service import AgentRuntime
from app.turn.gmi.base import Gmis
from tests.oracle import check_request

ADA = Caller("ada")
WEATHER = ToolSpec(
    "get_weather",
    "Tell the weather of a city",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
STOCK = ToolSpec("get_stock", "Tell the price of a share")
CHAT = "chat-1"


class Stage:
    """A running runtime, its host's view, and the provider that plays every model."""

    def __init__(self, runtime: AgentRuntime, provider: ScriptedProvider, database: str) -> None:
        self.runtime = runtime
        self.provider = provider
        self.database = database
        self.host = Host(runtime)

    def turn(self, text: str, **more: Any) -> AsyncIterator[Chunk]:
        """Start a turn of Ada's in the one conversation, unless `more` says otherwise."""
        return self.host.process_request(turn_input(text, **more))

    async def play(self, text: str, **more: Any) -> list[Chunk]:
        """Run a turn and give its chunks."""
        return [chunk async for chunk in self.turn(text, **more)]

    async def pass_results(
        self, stream_id: str, *results: ToolResult, caller: Caller = ADA, pause_id: str | None = None
    ) -> list[Chunk]:
        """Pass results on a stream and give the continuation's chunks."""
        passed = self.host.handle_tool_results(caller, stream_id, results, pause_id)
        return [chunk async for chunk in passed]

    async def resume(self, pending: Pause, *results: ToolResult, caller: Caller = ADA) -> list[Chunk]:
        """Resume a pause and give the chunks of its new stream."""
        return [chunk async for chunk in self.host.resume_external_tool_request(caller, pending, results)]

    async def pending(self, conversation: str = CHAT, caller: Caller = ADA) -> Pause | None:
        """Give the pause that the conversation holds."""
        return await self.host.get_pending_external_tool_request(caller, conversation)

    async def messages(self, conversation: str = CHAT, caller: Caller = ADA) -> list[MessageView]:
        """Give what the conversation keeps."""
        page = await self.runtime.list_messages(caller, conversation, cursor=None, limit=200, descending=False)
        return list(page.items)

    async def said(self, conversation: str = CHAT) -> list[tuple[str, Any]]:
        """Give role and content of what the conversation keeps."""
        return [(message.role, message.content) for message in await self.messages(conversation)]


def turn_input(
    text: str,
    *,
    conversation: str = CHAT,
    session: str | None = None,
    caller: Caller = ADA,
    tools: Sequence[ToolSpec] = (),
    **more: Any,
) -> TurnInput:
    """Make a turn's input."""
    return TurnInput(
        caller=caller,
        conversation_id=conversation,
        session_id=session or conversation,
        input=text,
        tools=tuple(tools),
        options=more.pop("options", TurnOptions()),
        **more,
    )


def result(call_id: str, output: Any = "21 degrees", name: str = WEATHER.name, **more: Any) -> ToolResult:
    """Make a host's result."""
    return ToolResult(call_id, name, output, **more)


@asynccontextmanager
async def running_stage(
    database: str,
    provider: ScriptedProvider | None = None,
    gmis: Gmis | None = None,
    guards: Guards | None = None,
    tools: Sequence[Tool] = (),
    *,
    memory: LongTermMemory | None = None,
    **settings: Any,
) -> AsyncIterator[Stage]:
    """Build, start and stop a runtime. At the end every request that its provider got must have been a valid one."""
    provider = provider or ScriptedProvider()
    given = Settings(_env_file=None, **{"drain_grace_seconds": 0, **settings})
    runtime = build(
        given,
        database,
        providers=ProviderRegistry([provider]),
        gmis=gmis,
        guards=guards,
        host_tools=tools,
        memory=memory,
    )
    await runtime.start()
    try:
        yield Stage(runtime, provider, database)
    finally:
        await runtime.stop()
    provider.assert_not_overdrawn()
    assert [violations(request) for request in provider.requests if violations(request)] == []


def violations(request: ModelRequest) -> list[str]:
    """Give the rules that a strict model server would find broken in the request."""
    return check_request(wire(request))


def wire(request: ModelRequest) -> list[dict[str, Any]]:
    """Give the request's messages as Chat Completions has them."""
    return [_sent(message) for message in request.messages]


def _sent(message: Message) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": "system" if message.role == "summary" else message.role, "content": message.content}
    if message.tool_calls:
        sent["tool_calls"] = [
            {"id": call.id, "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments))}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        sent["tool_call_id"] = message.tool_call_id
    return sent


def types(chunks: Sequence[Chunk]) -> list[str]:
    """Give the type of each chunk."""
    return [chunk["type"] for chunk in chunks]


def one(chunks: Sequence[Chunk], kind: str) -> Chunk:
    """Give the one chunk of that type."""
    found = [chunk for chunk in chunks if chunk["type"] == kind]
    assert len(found) == 1, f"{len(found)} chunks of type {kind} in {types(chunks)}"
    return found[0]
