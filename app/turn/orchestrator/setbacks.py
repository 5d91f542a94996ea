"""What could not be ended so far: each failure is followed by a longer wait, so that no fault is met without end."""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from app.domain.frozen import dataclass

FIRST_WAIT_SECONDS: Final = 1.0
LONGEST_WAIT_SECONDS: Final = 3600.0
FORGOTTEN_SECONDS: Final = 3 * LONGEST_WAIT_SECONDS
WHOLE_TRIES: Final = 3
"""How often an ending is tried with all that was said; after that, without what may be at fault."""


@dataclass(frozen=True, slots=True)
class Setback:
    """How often an operation's ending failed, how long to wait, and until when."""

    failures: int
    wait_seconds: float
    until: float


class Setbacks:
    """The operations whose ending failed in this process."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` is a clock in seconds that never goes back."""
        self._now = now
        self._by_operation: dict[UUID, Setback] = {}

    def waiting(self) -> set[UUID]:
        """Give the operations that are not to be tried now; those that nobody tried for long are forgotten."""
        now = self._now()
        for operation, setback in list(self._by_operation.items()):
            if now - setback.until > FORGOTTEN_SECONDS:
                del self._by_operation[operation]
        return {operation for operation, setback in self._by_operation.items() if setback.until > now}

    def are_many(self, operation: UUID) -> bool:
        """Tell whether the operation should be ended without what may be at fault."""
        setback = self._by_operation.get(operation)
        return setback is not None and setback.failures >= WHOLE_TRIES

    def failed(self, operation: UUID) -> Setback:
        """Count a failure and give what follows from it."""
        before = self._by_operation.get(operation)
        failures = before.failures + 1 if before is not None else 1
        wait = min(FIRST_WAIT_SECONDS * 2 ** (failures - 1), LONGEST_WAIT_SECONDS)
        self._by_operation[operation] = setback = Setback(failures, wait, self._now() + wait)
        return setback

    def ended(self, operation: UUID) -> None:
        """Forget an operation that has ended."""
        self._by_operation.pop(operation, None)
