"""How much a model can read: its context window in tokens."""

from typing import Final

from app.domain.policy import HistoryPolicy

_WINDOWS: Final = (
    ("gpt-3.5-turbo", 16_385),
    ("gpt-4", 8_192),
    ("gpt-4-turbo", 128_000),
    ("gpt-4o", 128_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-5", 400_000),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
    ("claude-", 200_000),
    ("gemini-", 1_048_576),
    ("mistral-", 128_000),
    ("deepseek-", 128_000),
)
"""By the beginning of a model's name; the longest that fits counts."""

_LARGEST_RESERVE: Final = 4096


def window_of(model_id: str, policy: HistoryPolicy) -> int:
    """Give the window of `provider:model`: as set, else as known, else the default."""
    if model_id in policy.context_windows:
        return policy.context_windows[model_id]
    name = model_id.partition(":")[2].rpartition("/")[2].lower()
    fitting = [(len(begin), window) for begin, window in _WINDOWS if name.startswith(begin)]
    return max(fitting)[1] if fitting else policy.default_window


def reserve_of(window: int, max_tokens: int | None) -> int:
    """Give what is kept free for the answer: what it may take, or a quarter of a small window."""
    return min(max_tokens or _LARGEST_RESERVE, window // 2 if max_tokens else window // 4)
