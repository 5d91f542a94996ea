"""Time as an argument, so that no test sleeps or patches."""

import time
from datetime import UTC, datetime
from typing import Final, Protocol

_BOOT: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """What the runtime asks about time."""

    def now(self) -> datetime:
        """Wall-clock time with zone UTC; for what people read, never for leases."""
        ...

    def boot_seconds(self) -> float:
        """Seconds that go on while the machine sleeps; for deadlines of this process."""
        ...


class SystemClock:
    """The real clock. Deadlines use CLOCK_BOOTTIME where there is one, so a suspended machine counts as late."""

    def now(self) -> datetime:
        """See `Clock.now`."""
        return datetime.now(UTC)

    def boot_seconds(self) -> float:
        """See `Clock.boot_seconds`."""
        return time.clock_gettime(_BOOT)
