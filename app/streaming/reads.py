"""Reads of the stored log that many readers want at the same moment, made once for all of them."""

import asyncio
from dataclasses import field
from typing import Final
from uuid import UUID

from app.domain.errors import DatabaseError
from app.domain.frozen import dataclass
from app.domain.views import Cursor
from app.store.database import Database
from app.store.events import Stored, read_after
from app.store.streams import StreamRecord, find_stream

BATCHES: Final = 200
BYTES: Final = 128 << 10
"""A read gives so many batches at most, and none behind the first that goes beyond this size.

A slow reader holds what a read has given until its socket takes it, and splitting that is done in one go.
"""

Found = tuple[StreamRecord | None, list[Stored]]


@dataclass(slots=True)
class _Place:
    """The readers that stand at one place of one stream, and the newest read for them."""

    readers: int = 0
    begun: int = 0
    found: Found | DatabaseError | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Reads:
    """Gives a stream's record and what is stored behind a cursor.

    Whoever asks gets a read that began after the question: a reader that was woken sees what it was woken for.
    """

    def __init__(self, database: Database) -> None:
        """Keep the database; `made` counts the reads."""
        self._database = database
        self._places: dict[tuple[str, Cursor], _Place] = {}
        self.made = 0

    async def after(self, conversation: UUID, stream_id: str, cursor: Cursor) -> Found:
        """Give the stream (None when it is gone) and the next batches. DatabaseError while the database is away."""
        key = (stream_id, cursor)
        place = self._places.setdefault(key, _Place())
        place.readers += 1
        wanted = place.begun + 1
        try:
            async with place.lock:
                if place.begun < wanted:
                    place.begun += 1
                    place.found = None
                    place.found = await self._read(conversation, stream_id, cursor)
                found = place.found
        finally:
            place.readers -= 1
            if place.readers == 0:
                self._places.pop(key, None)
        if found is None:
            # The read that this one was to share was broken off with its reader.
            return await self.after(conversation, stream_id, cursor)
        if isinstance(found, DatabaseError):
            raise found
        return found

    async def _read(self, conversation: UUID, stream_id: str, cursor: Cursor) -> Found | DatabaseError:
        self.made += 1
        try:
            # The status is read first: what it calls ended has all its events behind it already.
            async with self._database.transaction() as connection:
                record = await find_stream(connection, conversation, stream_id)
                stored = await read_after(connection, conversation, stream_id, cursor, limit=BATCHES, most_bytes=BYTES)
        except DatabaseError as error:
            return error
        return record, stored
