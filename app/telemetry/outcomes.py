"""Task outcomes of this process, joined with those of all others in windows in Postgres.

An outcome is written behind its turn: a crash may lose those of the last moment, and no turn waits for the row that all
turns of a scope share.
"""

import asyncio
from time import monotonic
from typing import Any, Final

import structlog

from app.domain.clock import Clock
from app.domain.errors import DatabaseError
from app.domain.outcomes import AdaptivePolicy, Kpi, Sample, TaskOutcome, TelemetryPolicy, alert, kpi, read_samples
from app.store import outcomes as store
from app.store.database import Database

FLUSH_SECONDS: Final = 0.5
LAST_FLUSH_SECONDS: Final = 2.0
FRESH_SECONDS: Final = 5.0
MOST_PENDING: Final = 10_000
MOST_SCOPES: Final = 1000
"""How many windows a process remembers; others are read again when they are asked for."""


class Outcomes:
    """The windows. `kpi_of` may read; `note` never waits."""

    def __init__(
        self, database: Database, clock: Clock, policy: TelemetryPolicy, adaptive: AdaptivePolicy | None = None
    ) -> None:
        """Begin without any window; each is read when it is first asked for."""
        self._database = database
        self._clock = clock
        self._windows: dict[str, tuple[float, tuple[Sample, ...]]] = {}
        self._pending: list[tuple[str, Sample]] = []
        self._writing: list[tuple[str, Sample]] = []
        self._alerted: dict[str, float] = {}
        self._noted = asyncio.Event()
        self._log = structlog.get_logger(__name__)
        self.policy = policy
        self.adaptive = adaptive or AdaptivePolicy()

    async def kpi_of(self, scope: str) -> Kpi:
        """Give what a scope's window comes to, at most some seconds old; of a database that is away, what is known."""
        read = self._windows.get(scope)
        if read is None or monotonic() - read[0] > FRESH_SECONDS:
            try:
                async with self._database.transaction() as connection:
                    self._keep(scope, await store.find(connection, scope))
            except DatabaseError:
                self._log.warning("outcomes.not_read", scope=scope)
        return self._kpi(scope)

    def note(self, scope: str, outcome: TaskOutcome) -> tuple[Kpi, dict[str, Any] | None]:
        """Count an outcome; gives what the window comes to with it, and an alert if one is due."""
        if len(self._pending) < MOST_PENDING:
            self._pending.append((scope, Sample(self._clock.now(), outcome.status, outcome.score)))
            self._noted.set()
        found = self._kpi(scope)
        warning, last = alert(found, self.policy), self._alerted.get(scope)
        if warning is None or (last is not None and monotonic() - last < self.policy.alert_cooldown):
            return found, None
        self._alerted[scope] = monotonic()
        self._log.warning("outcomes.alert", **warning)
        return found, warning

    async def run(self) -> None:
        """Write what is noted, until it is cancelled; then once more."""
        try:
            while True:
                await self._noted.wait()
                await asyncio.sleep(FLUSH_SECONDS)
                await self.flush()
        finally:
            async with asyncio.timeout(LAST_FLUSH_SECONDS):
                await self.flush()

    async def flush(self) -> None:
        """Write what is noted now; what can't be written is a warning, and is tried again with what comes next."""
        self._noted.clear()
        # A flush that the process's end cut short has left what it was writing.
        self._writing, self._pending = [*self._writing, *self._pending], []
        for scope in dict.fromkeys(scope for scope, _ in self._writing):
            samples = [sample for its, sample in self._writing if its == scope]
            try:
                async with self._database.transaction() as connection:
                    told = [sample.to_json() for sample in samples]
                    window = await store.add(connection, scope, told, most=self.policy.window)
            except DatabaseError:
                self._log.warning("outcomes.not_written", scope=scope, samples=len(samples))
                self._pending = [*((scope, sample) for sample in samples), *self._pending]
            else:
                self._keep(scope, window)
            self._writing = [entry for entry in self._writing if entry[0] != scope]

    def _keep(self, scope: str, stored: list[Any]) -> None:
        self._windows.pop(scope, None)
        self._windows[scope] = (monotonic(), read_samples(stored, self.policy.window))
        if len(self._windows) > MOST_SCOPES:
            oldest = next(iter(self._windows))
            del self._windows[oldest]
            self._alerted.pop(oldest, None)

    def _kpi(self, scope: str) -> Kpi:
        stored = self._windows.get(scope, (0.0, ()))[1]
        own = [sample for its, sample in (*self._writing, *self._pending) if its == scope]
        return kpi(scope, self.policy, (*stored, *own)[-self.policy.window :], self._clock.now())
