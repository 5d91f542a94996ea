"""Token counts of a model request, an attempt, a turn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Usage:
    """Billed tokens. `cached_tokens` are part of `prompt_tokens`, `reasoning_tokens` of `completion_tokens`."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )

    def to_json(self) -> dict[str, int]:
        """Give the public form."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.total_tokens,
            "cached_tokens": self.cached_tokens,
            "reasoning_tokens": self.reasoning_tokens,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Usage":
        """Read the public form; missing counts are zero."""
        return cls(
            int(stored.get("prompt_tokens") or 0),
            int(stored.get("completion_tokens") or 0),
            int(stored.get("cached_tokens") or 0),
            int(stored.get("reasoning_tokens") or 0),
        )
