"""Runs one call of a tool as a GMI does."""

from collections.abc import Mapping
from typing import Any

from app.domain.messages import ToolCall
from app.domain.tools import ToolResult
from app.domain.turn import Caller
from app.tools.base import Tool, ToolContext
from app.tools.executor import ToolExecutor
from app.tools.registry import ToolRegistry

CONTEXT = ToolContext(Caller("ada", "acme"), "chat-1", "s-1", "p-1", "turn-1")


async def run(tool: Tool, arguments: Mapping[str, Any] | None = None) -> ToolResult:
    """Run one call with these arguments."""
    executor = ToolExecutor(ToolRegistry([tool]), timeout=5)
    return await executor.run(ToolCall("c1", tool.spec.name, dict(arguments or {})), CONTEXT)


def fault(result: ToolResult) -> tuple[str, str]:
    """Give code and message of an error result."""
    assert result.is_error, result
    details = result.error_details or {}
    return details["code"], details["message"]
