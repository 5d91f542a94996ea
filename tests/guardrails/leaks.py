"""Everything that somebody could read afterwards, as one text: all tables, all replays, all views, the next prompt."""

import json
from collections.abc import Sequence
from typing import Any

import asyncpg

from app.domain.messages import dump
from app.domain.turn import StreamStatus
from app.domain.views import Cursor
from app.store.tables import metadata
from tests.stage import ADA, CHAT, Stage


async def tables(database: str) -> str:
    """Give every row of every table; bytes as the text that they are."""
    connection = await asyncpg.connect(database.replace("postgresql+asyncpg", "postgresql"))
    try:
        found = [
            f"{table}: {value}"
            for table in metadata.tables
            for row in await connection.fetch(f'SELECT * FROM "{table}"')  # noqa: S608 - the names are the tables' own
            for value in row.values()
        ]
    finally:
        await connection.close()
    return "\n".join(found).replace("\\n", "\n")


async def replay(stage: Stage, stream_id: str) -> str:
    """Give a stream's bytes from the first one on."""
    frames = await stage.runtime.open_events(ADA, stream_id, Cursor(0, 0), follow=False)
    assert frames is not None
    return b"".join([piece async for piece in frames]).decode()


async def readable(stage: Stage, streams: Sequence[str], conversation: str = CHAT) -> dict[str, str]:
    """Give all that can be read of a conversation, by where it is read, and last what its next turn tells a model."""
    found = {"tables": await tables(stage.database)}
    for stream_id in streams:
        found[f"replay {stream_id}"] = await replay(stage, stream_id)
        found[f"state {stream_id}"] = str(await stage.runtime.stream_state(ADA, stream_id))
    found["messages"] = str(await stage.messages(conversation))
    found["pending"] = str(await stage.pending(conversation))
    stage.provider.add("Fine.")
    before = len(stage.provider.requests)
    await stage.play("And now?", conversation=conversation)
    found["next prompt"] = json.dumps([dump(request.messages) for request in stage.provider.requests[before:]])
    assert len(stage.provider.requests) == before + 1
    return found


def places(found: dict[str, str], *words: str) -> list[str]:
    """Give where one of the words can be read."""
    return [place for place, text in found.items() if any(word in text for word in words)]


async def status(stage: Stage, stream_id: str) -> StreamStatus:
    return (await stage.runtime.stream_state(ADA, stream_id)).status


def text_of(chunks: Sequence[dict[str, Any]]) -> str:
    """Give the text that the pieces make."""
    return "".join(chunk["text_delta"] for chunk in chunks if chunk["type"] == "text_delta")
