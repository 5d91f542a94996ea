"""Counts of what the service does, for Prometheus: how much of what, and nothing of what is said.

Nothing is counted, and the library is not imported, unless the setting asks for it. Everything is counted once for an
operation, an attempt or a fault, and nothing for a token.
"""

from collections.abc import Callable, Mapping
from typing import Final

_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_MOST_MODELS: Final = 100
OTHER: Final = "other"


class Metrics:
    """What is told as it happens. This one forgets everything; `Counted` keeps it."""

    def operation(self, kind: str, status: str, seconds: float) -> None:
        """An operation (turn, continuation, resume) has ended with this status."""

    def pause_ended(self, event: str) -> None:
        """A pause was ended without its host: by a new turn, by time, by a cancel."""

    def repaired(self, faults: Mapping[str, int]) -> None:
        """Faults of a history were mended before it was sent; each of them means that something upstream was wrong."""

    def attempt(
        self,
        provider: str,
        model: str,
        outcome: str,
        reason: str | None,
        *,
        first_output_seconds: float | None,
        tokens: Mapping[str, int],
    ) -> None:
        """An attempt at a model request has ended; tokens by kind, as far as the provider told them."""

    def watch(self, name: str, says: str, value: Callable[[], float]) -> None:
        """Show a value as it is whenever somebody looks."""

    def render(self) -> bytes | None:
        """Give everything in Prometheus's text format; None when nothing is counted."""
        return None


class Counted(Metrics):
    """Counts for one process, in a registry of its own."""

    def __init__(self) -> None:
        from prometheus_client import (  # noqa: PLC0415 - imported only where the setting asks for it
            CollectorRegistry,
            Counter,
            Histogram,
            ProcessCollector,
        )

        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)

        def counter(name: str, says: str, *labels: str) -> Counter:
            return Counter(f"fermata_{name}", says, labels, registry=self._registry)

        def histogram(name: str, says: str, *labels: str) -> Histogram:
            return Histogram(f"fermata_{name}", says, labels, registry=self._registry, buckets=_SECONDS)

        self._models: set[tuple[str, str]] = set()
        self._operations = counter("operations", "Turns, continuations and resumes that ended.", "kind", "status")
        self._seconds = histogram("operation_seconds", "How long operations took.", "kind")
        self._pauses = counter("pauses_ended", "Pauses that ended without results.", "event")
        self._repairs = counter("history_repairs", "Faults of histories that were mended.", "fault")
        self._attempts = counter(
            "model_attempts", "Attempts at model requests.", "provider", "model", "outcome", "reason"
        )
        self._tokens = counter("model_tokens", "Tokens that providers told of.", "provider", "model", "kind")
        self._first = histogram("model_first_output_seconds", "Until a model began to answer.", "provider", "model")

    def operation(self, kind: str, status: str, seconds: float) -> None:
        """See `Metrics.operation`."""
        self._operations.labels(kind, status).inc()
        self._seconds.labels(kind).observe(seconds)

    def pause_ended(self, event: str) -> None:
        """See `Metrics.pause_ended`."""
        self._pauses.labels(event).inc()

    def repaired(self, faults: Mapping[str, int]) -> None:
        """See `Metrics.repaired`."""
        for fault, number in faults.items():
            self._repairs.labels(fault).inc(number)

    def attempt(
        self,
        provider: str,
        model: str,
        outcome: str,
        reason: str | None,
        *,
        first_output_seconds: float | None,
        tokens: Mapping[str, int],
    ) -> None:
        """See `Metrics.attempt`. Callers may name any model, so only so many are told apart."""
        if (provider, model) not in self._models and len(self._models) >= _MOST_MODELS:
            model = OTHER
        self._models.add((provider, model))
        self._attempts.labels(provider, model, outcome, reason or "").inc()
        for kind, number in tokens.items():
            if number:
                self._tokens.labels(provider, model, kind).inc(number)
        if first_output_seconds is not None:
            self._first.labels(provider, model).observe(first_output_seconds)

    def watch(self, name: str, says: str, value: Callable[[], float]) -> None:
        """See `Metrics.watch`."""
        from prometheus_client import Gauge  # noqa: PLC0415 - see above

        Gauge(f"fermata_{name}", says, registry=self._registry).set_function(value)

    def render(self) -> bytes | None:
        """See `Metrics.render`."""
        from prometheus_client import generate_latest  # noqa: PLC0415 - see above

        return generate_latest(self._registry)
