"""An MCP server for tests, written with the official SDK.

`python -m tests.tools.mcp_server` speaks over standard input and output. `python -m tests.tools.mcp_server PORT` serves
http://127.0.0.1:PORT/mcp. It notes its process id in the file that MCP_PID_FILE names.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("shop")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool()
def environment(name: str) -> str:
    """Tell a variable of the server's environment."""
    return os.environ.get(name, "not set")


@server.tool()
def fail() -> str:
    """Fail."""
    message = "the shop is closed"
    raise ValueError(message)


@server.tool()
def die() -> str:
    """End the process at once."""
    os._exit(3)


@server.tool()
async def hang() -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return ""


@server.tool()
async def grow(context: Context[Any, Any]) -> str:
    """Get another tool, and tell of it."""
    server.add_tool(lambda: "new", name="grown", description="A tool that was not there before.")
    await context.session.send_tool_list_changed()
    await context.notify_tools_changed()
    return "grown"


if __name__ == "__main__":
    if note := os.environ.get("MCP_PID_FILE"):
        Path(note).write_text(str(os.getpid()))
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
