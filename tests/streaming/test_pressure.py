"""A model that says more than the log can keep is read no further, and one that never comes to an end is ended."""

import asyncio
from collections.abc import AsyncGenerator

import asyncpg

from app.domain.turn import TurnOptions
from app.providers.base import Finish, ModelRequest, ProviderEvent, TextPiece
from app.providers.scripted import Hold, ScriptedProvider
from app.streaming.ring import UNWRITTEN_BYTES
from tests.stage import one, running_stage, types

PIECE = 64 * 1024
PIECES = 2 * UNWRITTEN_BYTES // PIECE


class Torrent(ScriptedProvider):
    """Says a little, and once it is let, twice what a ring may hold before it is durable."""

    def __init__(self) -> None:
        super().__init__()
        self.hold = Hold()
        self.given = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        self.requests.append(request)
        yield TextPiece("begun ")
        await self.hold.wait()
        while self.given < PIECES:
            self.given += 1
            yield TextPiece("x" * PIECE)
        yield Finish("stop")


class Dribble(ScriptedProvider):
    """Says something for ever."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        self.requests.append(request)
        while True:
            yield TextPiece(".")
            await asyncio.sleep(0.02)


async def test_while_the_log_can_not_be_written_the_model_is_read_no_further_than_the_ring_may_hold(
    database: str,
) -> None:
    torrent = Torrent()
    async with running_stage(database, torrent) as stage:
        turn = asyncio.create_task(stage.play("Say much."))
        await torrent.hold.reached.wait()
        (ring,) = stage.runtime._services.rings.all()
        connection = await asyncpg.connect(database)
        try:
            lock = connection.transaction()
            await lock.start()
            await connection.execute("LOCK TABLE stream_events IN ACCESS EXCLUSIVE MODE")
            torrent.hold.release()
            async with asyncio.timeout(30):
                while ring.has_room:  # noqa: ASYNC110 - the ring fills
                    await asyncio.sleep(0.01)
            full = torrent.given
            for _ in range(20):
                await connection.fetchval("SELECT 1")  # time for a model that is read on to say more
            assert torrent.given == full
            assert UNWRITTEN_BYTES - PIECE <= full * PIECE <= UNWRITTEN_BYTES + 2 * PIECE
            assert not turn.done()
            await lock.commit()
        finally:
            await connection.close()
        async with asyncio.timeout(50):
            chunks = await turn
    text = "".join(chunk["text_delta"] for chunk in chunks if chunk["type"] == "text_delta")
    assert len(text) == len("begun ") + PIECES * PIECE
    assert torrent.given == PIECES


async def test_a_model_that_dribbles_is_ended_when_the_turns_time_is_over(database: str) -> None:
    async with running_stage(database, Dribble()) as stage:
        async with asyncio.timeout(30):
            chunks = await stage.play("Say little.", options=TurnOptions(turn_timeout_seconds=1.0))
        assert [kind for kind in types(chunks) if kind in {"error", "final_response"}] == ["error", "final_response"]
        assert one(chunks, "error")["code"] == "TURN_TIMEOUT"
        text = one(chunks, "final_response")["final_response_text"]
        assert set(text) == {"."}
        assert ("assistant", text) in await stage.said()
