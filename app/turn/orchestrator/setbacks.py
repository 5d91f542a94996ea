"""What could not be ended so far: each failure is followed by a longer wait, so that no fault is met without end."""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from app.domain.frozen import dataclass

FIRST_WAIT_SECONDS: Final = 1.0
LONGEST_WAIT_SECONDS: Final = 3600.0
FORGOTTEN_SECONDS: Final = 3 * LONGEST_WAIT_SECONDS
WHOLE_TRIES: Final = 3
"""How often an ending is tried with all that was said; after that, without what may be at fault."""


@dataclass(frozen=True, slots=True)
class Setback:
    """How often an ending failed, how long to wait, and until when."""

    failures: int
    wait_seconds: float
    until: float


Name = TypeVar("Name", bound=Hashable)


class Setbacks(Generic[Name]):
    """What could not be ended in this process, by its name: operations, or pauses."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` is a clock in seconds that never goes back."""
        self._now = now
        self._by_name: dict[Name, Setback] = {}

    def waiting(self) -> set[Name]:
        """Give those that are not to be tried now; those that nobody tried for long are forgotten."""
        now = self._now()
        for name, setback in list(self._by_name.items()):
            if now - setback.until > FORGOTTEN_SECONDS:
                del self._by_name[name]
        return {name for name, setback in self._by_name.items() if setback.until > now}

    def are_many(self, name: Name) -> bool:
        """Tell whether it should be ended without what may be at fault."""
        setback = self._by_name.get(name)
        return setback is not None and setback.failures >= WHOLE_TRIES

    def failed(self, name: Name) -> Setback:
        """Count a failure and give what follows from it."""
        before = self._by_name.get(name)
        failures = before.failures + 1 if before is not None else 1
        wait = min(FIRST_WAIT_SECONDS * 2 ** (failures - 1), LONGEST_WAIT_SECONDS)
        self._by_name[name] = setback = Setback(failures, wait, self._now() + wait)
        return setback

    def ended(self, name: Name) -> None:
        """Forget what has ended."""
        self._by_name.pop(name, None)
