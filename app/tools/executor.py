"""Runs one call of a runtime tool: arguments checked, time and size bounded, the answer in JSON form. Never raises."""

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog

from app.domain.jsontext import dumps
from app.domain.messages import ToolCall
from app.domain.text import clean
from app.domain.tools import ToolResult
from app.observability.spans import spanned
from app.tools.arguments import with_defaults
from app.tools.base import Tool, ToolContext, ToolError
from app.tools.registry import ToolRegistry


class ToolExecutor:
    """Runs calls. A tool's own rules go before the bounds that hold for all: seconds, and bytes of output as JSON."""

    def __init__(self, registry: ToolRegistry, *, timeout: float, max_output_bytes: int = 1 << 20) -> None:
        """Keep the tools and the bounds."""
        self._registry = registry
        self._timeout = timeout
        self._max_output_bytes = max_output_bytes
        self._log = structlog.get_logger(__name__)

    @property
    def registry(self) -> ToolRegistry:
        """The tools that can be run."""
        return self._registry

    def argument_fault(self, call: ToolCall) -> str | None:
        """Say what is wrong with a call's arguments; None when they are right, or when nobody knows the tool."""
        tool = self._registry.find(call.name)
        return None if tool is None else _read(call, tool.spec.input_schema)[1]

    async def run(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Give the call's result. A fault of any kind is an error result that the model can read."""
        tool = self._registry.find(call.name)
        if tool is None:
            return failed(call, "TOOL_NOT_FOUND", f"There is no tool named {call.name}.")
        about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.name, "gen_ai.tool.call.id": call.id}
        with spanned(f"execute_tool {call.name}", about) as span:
            result = await self._run(call, tool, context)
            if span is not None and result.is_error:
                span.set_attribute("error.type", str((result.error_details or {}).get("code")))
            return result

    async def _run(self, call: ToolCall, tool: Tool, context: ToolContext) -> ToolResult:
        arguments, fault = _read(call, tool.spec.input_schema)
        if fault:
            return failed(call, "TOOL_ARGUMENTS_INVALID", fault)
        timeout = self._registry.rules(call.name).timeout or self._timeout
        try:
            async with asyncio.timeout(timeout):
                output = await tool.execute(arguments, context)
        except TimeoutError:
            return failed(call, "TOOL_TIMEOUT", f"The tool took longer than {timeout:g} seconds.")
        except ToolError as error:
            return failed(call, "TOOL_EXECUTION_FAILED", str(error))
        except Exception:  # noqa: BLE001 - a tool may raise anything, and the turn goes on
            self._log.exception("tool.failed", tool=call.name, call_id=call.id)
            return failed(call, "TOOL_EXECUTION_FAILED", "The tool failed for a reason of its own.")
        return self._succeeded(call, tool, output)

    def _succeeded(self, call: ToolCall, tool: Tool, output: Any) -> ToolResult:
        longest = self._registry.rules(call.name).max_output_bytes or self._max_output_bytes
        try:
            size = len(dumps(output))
        except (TypeError, ValueError, RecursionError):
            self._log.exception("tool.output_not_json", tool=tool.spec.name)
            return failed(call, "TOOL_OUTPUT_INVALID", "The tool gave a value that has no JSON form.")
        fault = _output_fault(output, self._registry.rules(call.name).output_schema)
        if fault is not None:
            return failed(call, "TOOL_OUTPUT_INVALID", fault)
        if size > longest:
            message = f"The tool gave {size} bytes and may give {longest}; ask it for less."
            return failed(call, "TOOL_OUTPUT_TOO_LARGE", message)
        return ToolResult(call.id, call.name, clean(output)[0])


def failed(call: ToolCall, code: str, message: str) -> ToolResult:
    """Make an error result."""
    details = {"code": code, "message": message}
    return ToolResult(call.id, call.name, details, is_error=True, error_details=details)


def _output_fault(output: Any, schema: Mapping[str, Any] | None) -> str | None:
    fault = None if schema is None else _misfit(output, schema)
    return None if fault is None else f"The tool gave what it may not give. {fault}"


def _read(call: ToolCall, schema: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Give the arguments as the schema means them, and what is wrong with them."""
    if call.invalid is not None:
        return {}, f"The arguments are not a JSON object: {call.invalid[:200]}"
    arguments = with_defaults(call.arguments, schema)
    return arguments, _misfit(arguments, schema)


def _misfit(value: Any, schema: Mapping[str, Any]) -> str | None:
    # Imported with the first call, since it takes long, and a process that is asked for none starts without.
    from jsonschema import Draft202012Validator  # noqa: PLC0415
    from jsonschema.exceptions import best_match  # noqa: PLC0415

    fault = best_match(Draft202012Validator(schema).iter_errors(value))
    return None if fault is None else f"At {fault.json_path}: {fault.message[:300]}"
