"""Tools as the model sees them, results as hosts send them, and the answer to a call that nobody ran."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

NOT_RUN_CODE: Final = "EXTERNAL_TOOL_NOT_RUN"
EXTERNAL_ERROR_CODE: Final = "EXTERNAL_TOOL_ERROR"


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model is told of a tool. `input_schema` is a JSON Schema of type object."""

    name: str
    description: str
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})

    def to_json(self) -> dict[str, Any]:
        """Give the stored form."""
        return {"name": self.name, "description": self.description, "input_schema": dict(self.input_schema)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "ToolSpec":
        """Read the stored form."""
        return cls(stored["name"], stored["description"], stored["input_schema"])


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The answer to one call, from the runtime's own tool or from a host.

    `output` is any JSON value. With `is_error`, `error_details` is `{code, message}` and is what the model reads.
    """

    tool_call_id: str
    tool_name: str
    output: Any = None
    is_error: bool = False
    error_details: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Give the stored form."""
        stored: dict[str, Any] = {
            "tool_call_id": self.tool_call_id,
            "tool_name": self.tool_name,
            "output": self.output,
            "is_error": self.is_error,
        }
        if self.error_details is not None:
            stored["error_details"] = dict(self.error_details)
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "ToolResult":
        """Read the stored form."""
        return cls(
            stored["tool_call_id"],
            stored["tool_name"],
            stored.get("output"),
            bool(stored.get("is_error")),
            stored.get("error_details"),
        )
