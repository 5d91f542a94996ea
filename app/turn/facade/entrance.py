"""The entrance: where very many operations begin at once, a few are on their way to be accepted and the others wait.

All at once they would hold what their beginning takes, and none would be told its first word before all are through.
"""

import asyncio
from typing import Final

AT_ONCE: Final = 16
SECONDS: Final = 0.5
"""After so long an operation is counted no more: it waits for a guard's model, say, or for its conversation, and must
keep nobody."""


class Entrance:
    """Lets `AT_ONCE` pass at a time, in the order in which they come."""

    def __init__(self) -> None:
        """Begin with nobody inside."""
        self._room = asyncio.Semaphore(AT_ONCE)

    def passing(self) -> "Passing":
        """Wait for room, and keep it for the block, for `SECONDS` at most."""
        return Passing(self._room)


class Passing:
    """One that passes; a class, since a generator costs more."""

    __slots__ = ("_room", "_timer")

    def __init__(self, room: asyncio.Semaphore) -> None:
        """Take no room yet."""
        self._room = room
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        """Wait for room."""
        await self._room.acquire()
        self._timer = asyncio.get_running_loop().call_later(SECONDS, self._leave)

    async def __aexit__(self, *_: object) -> None:
        """Leave the room to the next, unless its time was over before."""
        self._leave()

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._room.release()
