"""How well turns do: the outcome of a task, the window of the last ones, when to warn, and when to be careful."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, Final, Literal

from app.domain.frozen import dataclass
from app.domain.planning import Plan

Status = Literal["success", "partial", "failed"]
ScopeMode = Literal["global", "organization", "organization_persona"]

LONG_ANSWER: Final = 48
"""Characters from which on a reply counts as a whole one."""

_SUCCESS: Final = 0.7
_PARTIAL: Final = 0.3
_HALF: Final = 0.5
_CRITICAL: Final = 0.6
_WORDS: Final[Mapping[str, tuple[Status, float]]] = {
    **dict.fromkeys(("success", "succeeded", "done", "completed", "true"), ("success", 1.0)),
    **dict.fromkeys(("failed", "failure", "error", "false"), ("failed", 0.0)),
    **dict.fromkeys(("partial", "partially", "mixed"), ("partial", _HALF)),
}


@dataclass(frozen=True, slots=True)
class TelemetryPolicy:
    """How outcomes are kept: the last `window` of each scope. An alert comes below `alert_below`, once a cool-down."""

    window: int = 100
    scope: ScopeMode = "organization_persona"
    alerts: bool = True
    alert_below: float = 0.55
    alert_samples: int = 8
    alert_cooldown: float = 60.0


@dataclass(frozen=True, slots=True)
class AdaptivePolicy:
    """When a plan is made more careful: after enough samples, while the mean score is below the threshold."""

    enabled: bool = True
    samples: int = 5
    threshold: float = 0.7
    force_all_tools: bool = True
    force_fail_open: bool = True


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """How one turn did, and who says so. `score` is from 0 to 1."""

    status: Status
    score: float
    reason: str
    source: Literal["heuristic", "request_override"]

    def to_json(self) -> dict[str, Any]:
        """Give the public form."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a turn ended, as far as its outcome goes by it."""

    text: str | None
    calls: int = 0
    failed: bool = False
    degraded: bool = False


def outcome_of(ended: Ended, flags: Mapping[str, Any]) -> TaskOutcome:
    """Give the outcome: what the request's flag says, else what the end looks like."""
    told = _told(flags.get("taskOutcome", flags.get("task_outcome")))
    if told is not None:
        return TaskOutcome(*told, reason="flag", source="request_override")
    text = (ended.text or "").strip()
    if ended.failed:
        found: tuple[Status, float, str] = ("failed", 0.0, "error")
    elif len(text) >= LONG_ANSWER:
        found = ("success", 0.85 if ended.degraded else 0.95, "answer")
    elif text or ended.calls:
        found = ("partial", 0.5 if ended.degraded else 0.6, "short_answer" if text else "calls_only")
    else:
        found = ("failed", 0.1, "no_answer")
    return TaskOutcome(*found, source="heuristic")


def _told(value: Any) -> tuple[Status, float] | None:
    if isinstance(value, bool):
        return _WORDS[str(value).lower()]
    if isinstance(value, int | float) and value == value:  # noqa: PLR0124 - not a number is no outcome
        score = min(1.0, max(0.0, float(value)))
        return ("success" if score >= _SUCCESS else "partial" if score >= _PARTIAL else "failed"), score
    return _WORDS.get(value.strip().lower()) if isinstance(value, str) else None


def scope_key(mode: ScopeMode, organization_id: str, persona_id: str | None) -> str:
    """Name the window that a turn counts in."""
    if mode == "global":
        return "global"
    key = f"org:{organization_id or 'none'}"
    return key if mode == "organization" else f"{key}:persona:{persona_id or 'unknown'}"


@dataclass(frozen=True, slots=True)
class Sample:
    """One outcome in a window."""

    at: datetime
    status: Status
    score: float

    def to_json(self) -> dict[str, Any]:
        """Give the stored form."""
        return {"at": self.at.isoformat(), "status": self.status, "score": self.score}


def read_samples(stored: Sequence[Any], most: int) -> tuple[Sample, ...]:
    """Read a stored window, the newest `most`: what can't be read is dropped, scores are brought between 0 and 1."""
    found = []
    for entry in stored:
        try:
            score = min(1.0, max(0.0, float(entry["score"])))
            status = entry["status"]
            if status in {"success", "partial", "failed"}:
                found.append(Sample(datetime.fromisoformat(entry["at"]), status, score))
        except (KeyError, TypeError, ValueError):
            continue
    return tuple(sorted(found, key=lambda sample: sample.at)[-most:])


@dataclass(frozen=True, slots=True)
class Kpi:
    """What a window comes to."""

    scope_key: str
    scope_mode: ScopeMode
    window_size: int
    sample_count: int
    success_count: int
    partial_count: int
    failed_count: int
    success_rate: float
    average_score: float
    weighted_success_rate: float
    timestamp: str

    def to_json(self) -> dict[str, Any]:
        """Give the public form."""
        return asdict(self)


def kpi(key: str, policy: TelemetryPolicy, samples: Sequence[Sample], now: datetime) -> Kpi:
    """Sum up a window."""
    counts = {status: sum(1 for sample in samples if sample.status == status) for status in _COUNTED}
    size = len(samples)
    mean = round(sum(sample.score for sample in samples) / size, 4) if size else 0.0
    return Kpi(
        scope_key=key,
        scope_mode=policy.scope,
        window_size=policy.window,
        sample_count=size,
        success_count=counts["success"],
        partial_count=counts["partial"],
        failed_count=counts["failed"],
        success_rate=round(counts["success"] / size, 4) if size else 0.0,
        average_score=mean,
        weighted_success_rate=mean,
        timestamp=now.isoformat(timespec="milliseconds"),
    )


_COUNTED: Final[tuple[Status, ...]] = ("success", "partial", "failed")


def alert(found: Kpi, policy: TelemetryPolicy) -> dict[str, Any] | None:
    """Give the alert that a window is worth; None while it does well enough or says too little."""
    value = found.weighted_success_rate
    if not policy.alerts or found.sample_count < policy.alert_samples or value >= policy.alert_below:
        return None
    return {
        "scope_key": found.scope_key,
        "severity": "critical" if value < _CRITICAL * policy.alert_below else "warning",
        "reason": f"The weighted success rate is {value:g}, below {policy.alert_below:g}.",
        "threshold": policy.alert_below,
        "value": value,
        "sample_count": found.sample_count,
        "timestamp": found.timestamp,
    }


def adapted(plan: Plan, found: Kpi, policy: AdaptivePolicy) -> tuple[Plan, dict[str, Any]]:
    """Give the plan as the window asks for it, and what was done: all tools, and no turn that ends for one tool's sake.

    A turn whose flags asked for `fail_closed` by its full name keeps that.
    """
    applied = policy.enabled and found.sample_count >= policy.samples and found.weighted_success_rate < policy.threshold
    actions = []
    if applied and policy.force_all_tools and plan.selection == "discovered":
        plan = replace(plan, selection="all")
        actions.append("forced_all_tools")
    preserved = applied and policy.force_fail_open and plan.failure_mode == "fail_closed" and plan.asked_closed
    if applied and policy.force_fail_open and plan.failure_mode == "fail_closed" and not plan.asked_closed:
        plan = replace(plan, failure_mode="fail_open")
        actions.append("forced_fail_open")
    if actions:
        plan = replace(plan, fallback_reason=plan.fallback_reason or "adaptive_execution")
    shown = {"applied": bool(actions), "actions": actions, "preserved_fail_closed": preserved, "kpi": found.to_json()}
    return plan, shown
