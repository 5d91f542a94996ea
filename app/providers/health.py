"""Which models of which providers are worth asking: a circuit for each, with one probe at a time after its cooldown."""

from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final

from app.domain.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Limit:
    """How many failures in a row open the circuit, and for how many seconds."""

    failures: int
    seconds: float


_DEFAULT: Final = Limit(5, 60.0)


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """Limits by the reason of the failure; reasons that are the request's own fault never count."""

    limits: Mapping[str, Limit] = field(
        default_factory=lambda: MappingProxyType(
            {"auth": Limit(1, 1800.0), "quota": Limit(1, 300.0), "rate_limited": Limit(3, 30.0)}
        )
    )
    other: Limit = _DEFAULT
    ignored: frozenset[str] = frozenset({"invalid_request", "context_length", "content_filter"})


Key = tuple[str, str]


@dataclass(slots=True)
class _Circuit:
    streaks: dict[str, int] = field(default_factory=dict)
    open_until: float | None = None
    reason: str = ""
    probing: bool = False


class Health:
    """The circuits of one process. Every `admit` that says yes is answered by `succeeded`, `failed` or `left`."""

    def __init__(self, now: Callable[[], float], policy: HealthPolicy | None = None) -> None:
        self._now = now
        self._policy = policy or HealthPolicy()
        self._circuits: dict[Key, _Circuit] = {}

    def admit(self, key: Key) -> bool:
        """Tell whether a request may go out; the first one after a cooldown is a probe, and others wait for it."""
        circuit = self._circuits.get(key)
        if circuit is None or circuit.open_until is None:
            return True
        if circuit.probing or self._now() < circuit.open_until:
            return False
        circuit.probing = True
        return True

    def opened_by(self, key: Key) -> str | None:
        """Give the reason that opened the circuit; None when it is closed."""
        circuit = self._circuits.get(key)
        return circuit.reason if circuit is not None and circuit.open_until is not None else None

    def seconds_left(self, key: Key) -> float:
        """Give the rest of the cooldown; zero when there is none."""
        circuit = self._circuits.get(key)
        if circuit is None or circuit.open_until is None:
            return 0.0
        return max(0.0, circuit.open_until - self._now())

    def succeeded(self, key: Key) -> None:
        """Forget failures. A cooldown that runs is not cut short: another request may have opened it meanwhile."""
        circuit = self._circuits.get(key)
        if circuit is None:
            return
        circuit.streaks.clear()
        circuit.probing = False
        if circuit.open_until is None or self._now() >= circuit.open_until:
            del self._circuits[key]

    def failed(self, key: Key, reason: str, retry_after: float | None = None) -> None:
        """Count a failure; a failed probe opens the circuit again at once."""
        if reason in self._policy.ignored:
            self.left(key)
            return
        circuit = self._circuits.setdefault(key, _Circuit())
        limit = self._policy.limits.get(reason, self._policy.other)
        streak = circuit.streaks[reason] = circuit.streaks.get(reason, 0) + 1
        if circuit.probing or streak >= limit.failures:
            wait = max(limit.seconds, min(retry_after or 0.0, self._policy.other.seconds * 5))
            circuit.open_until = max(circuit.open_until or 0.0, self._now() + wait)
            circuit.reason = reason
        circuit.probing = False

    def left(self, key: Key) -> None:
        """Tell that a request ended without a verdict: its reader went away, or the fault was the request's own."""
        circuit = self._circuits.get(key)
        if circuit is not None:
            circuit.probing = False
