"""MCP servers: programs and addresses that bring tools of their own, by the official SDK.

Each server has one task that keeps a connection to it and learns which tools it has, now and when they change. A
server that is away takes only its own tools along: calls of them fail with a sentence, and the connection is tried
again, at longer and longer intervals.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import structlog

from app.domain.text import clean, clean_text
from app.domain.tools import ToolSpec
from app.tools.base import ToolContext, ToolError, ToolRules
from app.tools.mcp_file import McpServerPart

if TYPE_CHECKING:
    from mcp import Client

SEPARATOR: Final = "__"
LONGEST_NAME: Final = 64
LONGEST_DESCRIPTION: Final = 4096
MOST_PAGES: Final = 50
LOOK_SECONDS: Final = 60.0
"""How often a server is asked for its tools without having told of a change: it may be gone, or tell of none."""

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 60.0
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")


class McpServer:
    """One server. `run` keeps it connected until it is cancelled; `tools` are those that it had when it last told."""

    def __init__(
        self, part: McpServerPart, *, private: bool = False, look_seconds: float = LOOK_SECONDS, mode: str = "auto"
    ) -> None:
        """Keep how to reach it; nothing is started. `mode` is how the SDK agrees on the protocol's version."""
        self.part = part
        self.tools: dict[str, McpTool] = {}
        self._private = private
        self._look_seconds = look_seconds
        self._mode = mode
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self._attention = asyncio.Event()
        self._broken = False
        self._pause = FIRST_PAUSE
        self._log = structlog.get_logger(__name__).bind(server=part.name)

    async def run(self) -> None:
        """Connect, stay connected, and connect again."""
        while True:
            self._attention.clear()
            try:
                async with self._connection() as client:
                    await self._serve(client)
            except Exception as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    # A connection that fails while it is being closed must not hide why it is closed.
                    raise asyncio.CancelledError from error
                self._log.warning("mcp.away", reason=_reason(error), again_in=self._pause)
            finally:
                self._client = None
                self._connected.clear()
            # Whoever calls a tool of the server meanwhile has the connection tried at once.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause):
                    await self._attention.wait()
            self._pause = min(self._pause * 2, LONGEST_PAUSE)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool of the server by the server's name for it. ToolError says what the model may read."""
        client = await self._live()
        from mcp import MCPError  # noqa: PLC0415 - imported by whoever is connected

        try:
            result = await client.call_tool(name, dict(arguments), read_timeout_seconds=self.part.timeout_seconds)
        except MCPError as error:
            if client is not self._client or _is_lost(error):
                self._drop(client)
                raise self._away() from None
            message = f"The server {self.part.name} refused the call: {clean_text(error.message)[:500]}"
            raise ToolError(message) from None
        except Exception as error:
            self._drop(client)
            self._log.warning("mcp.call_failed", reason=_reason(error))
            raise self._away() from error
        if result.is_error:
            raise ToolError(_text(result.content)[:2000] or f"The server {self.part.name} gave an error without words.")
        output = result.structured_content if result.structured_content is not None else _text(result.content)
        return clean(output)[0]

    async def _live(self) -> "Client":
        """Give the connection; one that is away is waited for, a little."""
        if self._client is None:
            self._attention.set()
            try:
                async with asyncio.timeout(min(self.part.connect_seconds, self.part.timeout_seconds)):
                    await self._connected.wait()
            except TimeoutError:
                raise self._away("the call was not run") from None
        if self._client is None:
            raise self._away("the call was not run")
        return self._client

    def _away(self, known: str = "whether the call was run is not known") -> ToolError:
        return ToolError(f"The server {self.part.name} can't be reached at the moment; {known}.")

    def _drop(self, client: "Client") -> None:
        """Have the connection made anew, unless that has happened already."""
        if client is not self._client:
            return
        self._client, self._broken = None, True
        self._connected.clear()
        self._attention.set()

    @asynccontextmanager
    async def _connection(self) -> "AsyncIterator[Client]":
        from mcp import Client  # noqa: PLC0415 - it takes a second, which only who has servers spends

        part = self.part
        async with _transport(part, private=self._private) as transport:
            client = Client(
                transport,
                read_timeout_seconds=part.timeout_seconds,
                message_handler=self._heard,
                cache=None,
                mode=self._mode,
            )
            async with asyncio.timeout(part.connect_seconds) as limit, client:
                limit.reschedule(None)
                yield client

    async def _serve(self, client: "Client") -> None:
        """Keep the list of tools until the connection is given up."""
        self._broken = False
        listening: asyncio.Task[None] | None = None
        try:
            while True:
                self._attention.clear()
                self.tools = await self._listed(client)
                if self._client is None:
                    self._client, self._pause = client, FIRST_PAUSE
                    self._connected.set()
                    self._log.info("mcp.connected", tools=len(self.tools))
                    listening = asyncio.create_task(self._listen(client), name=f"mcp changes {self.part.name}")
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._look_seconds):
                        await self._attention.wait()
                if self._broken:
                    return
        finally:
            if listening is not None:
                listening.cancel()
                with suppress(asyncio.CancelledError):
                    await listening

    async def _listen(self, client: "Client") -> None:
        """Hear of changes from a server of the newer protocol, which tells of them on a stream of their own."""
        from mcp.client.subscriptions import ListenNotSupportedError  # noqa: PLC0415

        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._attention.set()
        except ListenNotSupportedError:
            return
        except Exception as error:  # noqa: BLE001 - changes are then seen by looking
            self._log.info("mcp.tells_no_changes", reason=_reason(error))

    async def _heard(self, message: Any) -> None:
        """Hear of changes from a server of the older protocol, and of a connection that is gone."""
        if isinstance(message, Exception):
            return
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self._attention.set()

    async def _listed(self, client: "Client") -> "dict[str, McpTool]":
        found: dict[str, McpTool] = {}
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                made = self._tool(tool.name, tool.description or tool.title or tool.name, tool.input_schema)
                if made is not None:
                    found.setdefault(made.spec.name, made)
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    def _tool(self, name: str, description: str, schema: Mapping[str, Any]) -> "McpTool | None":
        """Give a tool that may be offered; None for one that is not on the list, or whose schema is none."""
        if self.part.tools is not None and not _matches(name, self.part.tools):
            return None
        from jsonschema import Draft202012Validator  # noqa: PLC0415 - takes long, and most have no server
        from jsonschema.exceptions import SchemaError  # noqa: PLC0415

        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            self._log.warning("mcp.tool_left_out", tool=name[:LONGEST_NAME], reason=error.message[:200])
            return None
        spec = ToolSpec(
            told_name(self.part.name, name), clean_text(description)[:LONGEST_DESCRIPTION], clean(schema)[0]
        )
        return McpTool(self, name, spec, requires_approval=_matches(name, self.part.requires_approval))


class McpTool:
    """A tool of a server."""

    def __init__(self, server: McpServer, name: str, spec: ToolSpec, *, requires_approval: bool) -> None:
        """Keep the server's name for it, and what a model is told of it."""
        self.spec = spec
        self.rules = ToolRules(
            # The server's own bound comes first, and is told in better words.
            timeout=server.part.timeout_seconds + server.part.connect_seconds,
            max_output_bytes=server.part.max_output_bytes,
            requires_approval=requires_approval,
        )
        self._server = server
        self._name = name

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Have the server run it."""
        del context
        return await self._server.call(self._name, arguments)


class McpServers:
    """All servers, as one source of tools."""

    def __init__(self, servers: Sequence[McpServer]) -> None:
        """Keep them."""
        self._servers = tuple(servers)

    def tools(self) -> dict[str, McpTool]:
        """Give the tools that there are now."""
        return {name: tool for server in self._servers for name, tool in server.tools.items()}

    async def run(self) -> None:
        """Keep all servers connected until this is cancelled; then their programs have ended."""
        async with asyncio.TaskGroup() as group:
            for server in self._servers:
                group.create_task(server.run(), name=f"mcp server {server.part.name}")


def told_name(server: str, tool: str) -> str:
    """Give the name that a model is told: the server's before the tool's, in the letters that all models take."""
    name = _UNSAFE.sub("_", f"{server}{SEPARATOR}{tool}")
    if len(name) <= LONGEST_NAME:
        return name
    mark = hashlib.blake2b(tool.encode(), digest_size=4).hexdigest()
    return f"{name[: LONGEST_NAME - len(mark) - 1]}_{mark}"


@asynccontextmanager
async def _transport(part: McpServerPart, *, private: bool) -> AsyncIterator[Any]:
    """Give the SDK's transport. A program gets the environment that its part names, and none of the service's keys."""
    from mcp import StdioServerParameters, stdio_client  # noqa: PLC0415

    if part.command is not None:
        program, *arguments = part.command
        yield stdio_client(StdioServerParameters(command=program, args=arguments, env=part.env, cwd=part.cwd))
        return
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

    from app.tools.mcp_address import client  # noqa: PLC0415

    seconds = {"connect_seconds": part.connect_seconds, "seconds": part.timeout_seconds}
    async with client(part.headers, private=private, **seconds) as http:
        yield streamable_http_client(part.url or "", http_client=http)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_lost(error: Any) -> bool:
    from mcp_types import CONNECTION_CLOSED  # noqa: PLC0415

    return bool(error.code == CONNECTION_CLOSED)


def _text(content: Sequence[Any]) -> str:
    """Give the texts of a result; what is no text is named."""
    return "\n".join(
        str(part.text) if getattr(part, "text", None) is not None else f"[{part.type} left out]" for part in content
    )


def _reason(error: BaseException) -> str:
    """Name the failure; a group of them is named by its first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:200]
