"""What models are asked and what that costs: token counts, who served, and one attempt as the ledger keeps it."""

from collections.abc import Mapping
from typing import Any, Literal

from app.domain.frozen import dataclass

Purpose = Literal["turn", "summary", "metaprompt", "judge", "embedding"]


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


@dataclass(frozen=True, slots=True)
class Hop:
    """The model that served a step: its place on the turn's route (0 is the one that was asked for) and its names."""

    number: int
    provider: str
    model: str

    def to_json(self) -> dict[str, Any]:
        """Give the stored form."""
        return {"number": self.number, "provider": self.provider, "model": self.model}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Hop":
        """Read the stored form."""
        return cls(stored["number"], stored["provider"], stored["model"])


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One attempt at a model request, whatever came of it. Seconds count from the attempt's start.

    `usage` is what the provider told; with `estimated` it is this service's own count, because the provider told
    nothing. `cost` is US dollars, None where no price is known. `abandoned` means that the reader went away.
    """

    purpose: Purpose
    step: int
    hop: int
    attempt: int
    provider: str
    model: str
    outcome: Literal["delivered", "failed", "abandoned"]
    reason: str | None = None
    status: int | None = None
    usage: Usage = Usage()
    estimated: bool = False
    cost: float | None = None
    first_output_seconds: float | None = None
    seconds: float = 0.0
