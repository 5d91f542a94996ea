"""What is known of a model beside how to reach it: its window, its tokenizer, its prices."""

from typing import Final

from app.domain.frozen import dataclass
from app.domain.usage import Usage

_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars for a million tokens."""

    input: float
    output: float = 0.0
    cached_input: float | None = None

    def cost(self, usage: Usage) -> float:
        """Give the US dollars of a usage."""
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        cached_price = self.input if self.cached_input is None else self.cached_input
        fresh = (usage.prompt_tokens - cached) * self.input
        return (fresh + cached * cached_price + usage.completion_tokens * self.output) / _MILLION


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """None means: not known."""

    context_window: int | None = None
    max_output_tokens: int | None = None
    tokenizer: str | None = None
    prices: Prices | None = None

    def cost(self, usage: Usage) -> float | None:
        """Give the US dollars of a usage; None without prices."""
        return None if self.prices is None else self.prices.cost(usage)
