"""The two ways in which processes wake each other's readers: LISTEN and NOTIFY, or a look at the tables.

Both only hint: a follower that hears nothing looks by itself. NOTIFY goes out on a connection of its own, outside the
transactions that write, where it would cost half of their throughput.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import asyncpg
import structlog

from app.domain.ids import conversation_of
from app.store.database import Database, is_lost

CHANNEL: Final = "fermata_streams"
LARGEST_PAYLOAD: Final = 7900
PROBE_SECONDS: Final = 10.0
RETRY_SECONDS: Final = (0.05, 0.25, 1.0)
LOOK_SECONDS: Final = 0.15

_NOTIFY: Final = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload"
_LOOK: Final = """
SELECT asked.stream_id, stream.fence, stream.status, (
    SELECT max(event.last_n) FROM stream_events event
    WHERE event.conversation = asked.conversation AND event.stream_id = asked.stream_id
        AND event.fence = stream.fence
) AS last_n
FROM unnest($1::uuid[], $2::text[]) AS asked(conversation, stream_id)
LEFT JOIN streams stream ON stream.conversation = asked.conversation AND stream.stream_id = asked.stream_id
"""

Wake = Callable[[Iterable[str] | None], None]
Watched = Callable[[], Sequence[str]]


class ListenBus:
    """LISTEN and NOTIFY on one connection, made again when it is lost. It must lead past any transaction pooler."""

    def __init__(self, url: str) -> None:
        """`url` is a Postgres URL of the server itself."""
        self._url = url
        self._connection: Any = None
        self._in_use = asyncio.Lock()
        self._log = structlog.get_logger(__name__)

    async def announce(self, stream_ids: Sequence[str]) -> None:
        """Send one notification (several when the names are too many for one); drop it while there is no connection."""
        if self._connection is None or not stream_ids:
            return
        async with self._in_use:
            await self._connection.execute(_NOTIFY, CHANNEL, list(payloads(stream_ids)))

    async def run(self, wake: Wake, watched: Watched) -> None:
        """Listen for ever. After each connection everybody is woken: hints may have been missed before it."""
        del watched
        failures = 0
        while True:
            try:
                await self._listen(wake)
                failures = 0
            except Exception as error:  # noqa: BLE001 - listening goes on whatever one connection met
                if not is_lost(error):
                    self._log.exception("wakeups.listen_failed")
                failures += 1
            await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])

    async def _listen(self, wake: Wake) -> None:
        connection = await asyncpg.connect(self._url, timeout=5, command_timeout=5)
        try:
            own = connection.get_server_pid()

            def heard(_: Any, sender: int, __: str, payload: str) -> None:
                if sender != own:
                    wake(payload.split(","))

            closed = asyncio.Event()
            connection.add_termination_listener(lambda _: closed.set())
            await connection.add_listener(CHANNEL, heard)
            self._connection = connection
            wake(None)
            while not await _within(closed, PROBE_SECONDS):
                async with self._in_use:
                    await connection.execute("SELECT 1")
        finally:
            self._connection = None
            connection.terminate()


class LookBus:
    """Looks at the watched streams a few times a second, where only a transaction pooler is in reach."""

    def __init__(self, database: Database, *, interval: float = LOOK_SECONDS) -> None:
        """`interval` is the time between two looks, in seconds."""
        self._database = database
        self._interval = interval
        self._log = structlog.get_logger(__name__)

    async def announce(self, stream_ids: Sequence[str]) -> None:
        """Others look by themselves."""

    async def run(self, wake: Wake, watched: Watched) -> None:
        """Look for ever, with one statement for all streams, and wake those that differ from the look before."""
        before: dict[str, tuple[Any, ...]] = {}
        while True:
            await asyncio.sleep(self._interval)
            try:
                now = await self._look(watched())
            except Exception as error:  # noqa: BLE001 - looking goes on whatever one look met
                if not is_lost(error):
                    self._log.exception("wakeups.look_failed")
                continue
            wake([stream_id for stream_id, state in now.items() if before.get(stream_id) != state])
            before = now

    async def _look(self, watched: Sequence[str]) -> dict[str, tuple[Any, ...]]:
        pairs = [(key, name) for name in watched if (key := conversation_of(name)) is not None]
        if not pairs:
            return {}
        async with self._database.driver() as connection:
            rows = await connection.fetch(_LOOK, [key for key, _ in pairs], [name for _, name in pairs])
        return {row["stream_id"]: (row["fence"], row["status"], row["last_n"]) for row in rows}


def payloads(stream_ids: Sequence[str]) -> Iterable[str]:
    """Put the names into as few payloads as their largest size allows."""
    payload = ""
    for stream_id in stream_ids:
        if payload and len(payload) + 1 + len(stream_id) > LARGEST_PAYLOAD:
            yield payload
            payload = ""
        payload = f"{payload},{stream_id}" if payload else stream_id
    if payload:
        yield payload


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
