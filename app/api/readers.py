"""How many responses may be read at a time: of one stream, by one user, in one process."""

from collections import Counter
from typing import Final, TypeVar

from app.domain.errors import RateLimitedError
from app.domain.frozen import dataclass
from app.domain.turn import Caller

RETRY_AFTER: Final = 5
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReaderLimits:
    """The most readers; and how long one of them may take nothing, in seconds."""

    per_stream: int = 2000
    per_user: int = 500
    per_process: int = 10_000
    blocked_seconds: float = 60.0


class Readers:
    """Counts the responses that last, whatever form they have."""

    def __init__(self, limits: ReaderLimits) -> None:
        """Start with none."""
        self.limits = limits
        self._all = 0
        self._by_user: Counter[Caller] = Counter()
        self._by_stream: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._all

    def take(self, caller: Caller, stream_id: str | None = None) -> "Slot":
        """Let a reader in. Raises RateLimitedError; a stream that is not known yet is told to the slot later."""
        self._refuse("in this process", self._all, self.limits.per_process)
        self._refuse("of this user", self._by_user[caller], self.limits.per_user)
        if stream_id is not None:
            self._refuse("of this stream", self._by_stream[stream_id], self.limits.per_stream)
        slot = Slot(self, caller)
        self._all += 1
        self._by_user[caller] += 1
        if stream_id is not None:
            slot.bind(stream_id)
        return slot

    def _refuse(self, whose: str, now: int, most: int) -> None:
        if now >= most:
            message = f"{most} readers {whose} are open; close one, or come back later."
            raise RateLimitedError(message, retry_after=RETRY_AFTER)

    def _count(self, stream_id: str) -> None:
        self._by_stream[stream_id] += 1

    def _leave(self, caller: Caller, stream_id: str | None) -> None:
        self._all -= 1
        _lower(self._by_user, caller)
        if stream_id is not None:
            _lower(self._by_stream, stream_id)


class Slot:
    """One reader's place; it must be given back, and giving it back twice does nothing."""

    __slots__ = ("_caller", "_readers", "_stream_id")

    def __init__(self, readers: Readers, caller: Caller) -> None:
        """Take the place."""
        self._readers: Readers | None = readers
        self._caller = caller
        self._stream_id: str | None = None

    def bind(self, stream_id: str) -> None:
        """Say which stream is read."""
        if self._readers is not None and self._stream_id is None:
            self._stream_id = stream_id
            self._readers._count(stream_id)  # noqa: SLF001 - a slot is the other half of its readers

    def release(self) -> None:
        """Give the place back."""
        if self._readers is not None:
            self._readers._leave(self._caller, self._stream_id)  # noqa: SLF001
            self._readers = None


def _lower(counter: Counter[T], key: T) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
