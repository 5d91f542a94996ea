"""Tools as the model sees them, results as hosts send them, and the answer to a call that nobody ran."""

from collections.abc import Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

from app.domain.frozen import dataclass

NOT_RUN_CODE: Final = "EXTERNAL_TOOL_NOT_RUN"
FailureMode = Literal["fail_open", "fail_closed"]
"""What a failed call of a runtime tool does: the model reads it and goes on, or the turn fails."""

DENIED_CODE: Final = "TOOL_CALL_DENIED"
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
class Decision:
    """What a person said to a call that needs approval, and who it was. `arguments` replace the model's own."""

    approved: bool
    arguments: Mapping[str, Any] | None = None
    reason: str | None = None
    by: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Give the stored form; what was not said is left out."""
        stored: dict[str, Any] = {"approved": self.approved}
        if self.arguments is not None:
            stored["arguments"] = dict(self.arguments)
        if self.reason is not None:
            stored["reason"] = self.reason
        if self.by is not None:
            stored["by"] = self.by
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Decision":
        """Read the stored form."""
        return cls(bool(stored["approved"]), stored.get("arguments"), stored.get("reason"), stored.get("by"))


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The answer to one call, from the runtime's own tool or from a host.

    `output` is any JSON value. With `is_error`, `error_details` is `{code, message}` and is what the model reads.
    `decision` is there for a call that needs approval.
    """

    tool_call_id: str
    tool_name: str
    output: Any = None
    is_error: bool = False
    error_details: Mapping[str, Any] | None = None
    decision: Decision | None = None

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
        if self.decision is not None:
            stored["decision"] = self.decision.to_json()
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
            Decision.from_json(stored["decision"]) if stored.get("decision") else None,
        )


@dataclass(frozen=True, slots=True)
class ToolGate:
    """A turn's rule on which calls may be made: none that `deny` matches, and with `allow` only those it matches.

    Patterns are matched against the tool's name as shells match file names (`*`, `?`, `[…]`).
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()

    def lets_pass(self, name: str) -> bool:
        """Tell whether a call of that tool may be made."""
        if any(fnmatchcase(name, pattern) for pattern in self.deny):
            return False
        return self.allow is None or any(fnmatchcase(name, pattern) for pattern in self.allow)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> "ToolGate":
        """Read the stored form, `{"allow"?: [...], "deny"?: [...]}`; None lets everything pass."""
        given = stored or {}
        allow = given.get("allow")
        return cls(None if allow is None else tuple(allow), tuple(given.get("deny") or ()))
