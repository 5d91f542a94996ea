"""Settings that a turn is run by, as frozen values: filled once, passed down."""

from collections.abc import Mapping
from dataclasses import field

from app.domain.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Compaction:
    """How a rolling summary is made; a profile is one of these. Sizes are messages, `cooldown` is seconds.

    `model` is `provider:model`, None the default one. `system_prompt` replaces the summarizer's own.
    """

    enabled: bool = False
    model: str | None = None
    cooldown: float = 60.0
    head: int = 2
    tail: int = 12
    least: int = 12
    most: int = 48
    max_output_tokens: int = 900
    temperature: float = 0.1
    system_prompt: str | None = None


@dataclass(frozen=True, slots=True)
class SummaryPolicy:
    """The rolling summary's settings: what holds for all modes, and profiles by mode.

    `deadline` bounds a pass in seconds, `max_input_tokens` what it reads.
    """

    base: Compaction = Compaction()
    profiles: Mapping[str, Compaction] = field(default_factory=dict)
    by_mode: Mapping[str, str] = field(default_factory=dict)
    default_profile: str | None = None
    deadline: float = 8.0
    max_input_tokens: int = 24_000


@dataclass(frozen=True, slots=True)
class HistoryPolicy:
    """What of a conversation is told. `limit` 0 tells every message; `chunk` and `tail` are for summaries at the limit.

    `context_windows` gives, by `provider:model`, windows in tokens that the built-in table lacks or has wrong.
    """

    limit: int = 100
    head: int = 2
    tail: int = 10
    chunk: int = 20
    summarize_at_limit: bool = False
    summary: SummaryPolicy = SummaryPolicy()
    context_windows: Mapping[str, int] = field(default_factory=dict)
    default_window: int = 128_000


@dataclass(frozen=True, slots=True)
class TenantPolicy:
    """How organizations are told apart: `single` for all, and `strict` where others than the `default` are refused."""

    single: bool = False
    default: str = ""
    strict: bool = False

    def to_json(self) -> dict[str, str | bool | None]:
        """Give what the routing block tells."""
        return {
            "mode": "single_tenant" if self.single else "multi_tenant",
            "strict_organization_isolation": self.strict,
            "default_organization_id": self.default or None,
        }


@dataclass(frozen=True, slots=True)
class TurnPolicy:
    """How turns run. Durations are seconds, sizes are messages or bytes.

    `utility_model` does the small work beside turns, such as summaries; None leaves it to the default one. A session's
    reasoning trace keeps `trace_entries`. `keep_prompts` stores what models are told, for the operator to read.
    """

    default_model: str
    utility_model: str | None = None
    max_tool_iterations: int = 5
    tool_concurrency: int = 10
    turn_timeout: float = 600.0
    history: HistoryPolicy = HistoryPolicy()
    persistence: bool = True
    max_result_bytes: int = 4 << 20
    max_waiting_turns: int = 10
    trace_entries: int = 500
    keep_prompts: bool = False
    tenants: TenantPolicy = TenantPolicy()

    def longest(self, asked: float | None, own: float | None) -> float:
        """Give how many seconds an operation may take: as the turn asks, else as its persona says, else as set."""
        return asked or own or self.turn_timeout


@dataclass(frozen=True, slots=True)
class LeasePolicy:
    """How a replica shows that it lives: renewed every `renew` seconds for `length` seconds."""

    renew: float = 3.0
    length: float = 10.0
    sweep: float = 2.0
