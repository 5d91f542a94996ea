"""A hundred clients vanish at random: half of their turns are cancelled, the others end, and nothing stays behind."""

import asyncio
import gc
import json
import random
from collections.abc import AsyncGenerator
from typing import Any

from app.domain.usage import Usage
from app.providers.base import CallsReady, Finish, ModelRequest, ProviderEvent, TextPiece, UsageReport
from app.providers.scripted import ScriptedProvider, call
from tests.api.serving import application, served
from tests.databases import rows
from tests.live.quick import TOOL
from tests.sse import frames_of, only, text_of
from tests.stage import running_stage

CLIENTS = 100
PIECES = 30


class Talker(ScriptedProvider):
    """Answers everybody slowly, or asks for the weather; counts who listens."""

    def __init__(self) -> None:
        super().__init__()
        self.listening = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ProviderEvent, None]:
        self.listening += 1
        try:
            for number in range(PIECES):
                yield TextPiece(f"{number} ")
                await asyncio.sleep(0.02)
            if request.tools and "weather" in str(request.messages[-1].content):
                yield CallsReady((call("get_weather", {"city": "Berlin"}, id="call_1"),))
            yield UsageReport(Usage(3, PIECES))
            yield Finish("tool_calls" if request.tools and "weather" in str(request.messages[-1].content) else "stop")
        finally:
            self.listening -= 1


async def vanish(port: int, number: int, seconds: float, *, cancel: bool) -> None:
    """Start a turn and go away after a while, whatever has come by then."""
    body: dict[str, Any] = {"input": "What is the weather?" if number % 3 == 0 else "Talk", "tools": [TOOL]}
    content = json.dumps({**body, "on_disconnect": "cancel" if cancel else "continue"}).encode()
    head = f"POST /v1/conversations/chat-{number}/turns HTTP/1.1\r\nHost: localhost\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
    try:
        async with asyncio.timeout(seconds):
            while await reader.read(4096):
                pass
    except TimeoutError:
        writer.transport.abort()
    finally:
        writer.close()


async def test_after_a_hundred_clients_have_vanished_nothing_is_left_of_them(database: str) -> None:
    chance = random.Random(10)  # noqa: S311 - a test's own dice
    talker = Talker()
    async with running_stage(database, talker, drain_grace_seconds=5) as stage:
        app = application(stage.runtime)
        async with served(app) as port:
            before = {task.get_name() for task in asyncio.all_tasks()}
            async with asyncio.timeout(40):
                await asyncio.gather(
                    *(
                        vanish(port, number, chance.choice((0.0, 0.01, 0.3, 1.0)), cancel=number % 2 == 0)
                        for number in range(CLIENTS)
                    )
                )
                while talker.listening or await rows(  # noqa: ASYNC110 - states of all parts
                    database, "SELECT 1 FROM conversations WHERE running_operation IS NOT NULL"
                ):
                    await asyncio.sleep(0.05)
                # A turn whose client left early may not even be stored yet: it is still to run.
                while len(stage.runtime._lifecycle.tasks):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                while len(app.state.door.readers):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            gc.collect()
            left = {task.get_name() for task in asyncio.all_tasks() if not task.done()} - before
            assert {name for name in left if "turn" in name or "operation" in name} == set()
            assert stage.runtime._services.rings.all() == []
            assert stage.runtime._services.wakeups._watches == {}
            async with asyncio.timeout(30):
                while stage.runtime._services.database.checked_out:  # noqa: ASYNC110 - the log writes now and then
                    await asyncio.sleep(0.01)
    await check_what_is_kept(database)


ENDED = """
SELECT stream.stream_id, stream.status, stream.usage, conversation_id, (
    SELECT string_agg(content #>> '{}', '') FROM messages m WHERE m.conversation = c.id AND role = 'assistant'
) AS said, (
    SELECT string_agg(frames, ''::bytea ORDER BY fence, first_n) FROM stream_events e
    WHERE e.conversation = c.id AND e.stream_id = stream.stream_id
) AS frames
FROM streams stream JOIN conversations c ON c.id = stream.conversation
"""
LEDGER = "SELECT stream_id, outcome, estimated, completion_tokens FROM usage_ledger"


async def check_what_is_kept(database: str) -> None:
    """Check that who asked for it was cancelled, and that text and usage of those turns are there."""
    ended = await rows(database, ENDED)
    bills = {row["stream_id"]: row for row in await rows(database, LEDGER)}
    by_choice: dict[bool, list[Any]] = {True: [], False: []}
    for row in ended:
        by_choice[int(row["conversation_id"].rpartition("-")[2]) % 2 == 0].append(row)
    assert {row["status"] for row in by_choice[False]} <= {"completed", "paused"}
    cancelled = [row for row in by_choice[True] if row["status"] == "cancelled"]
    assert len(cancelled) > 10
    for row in cancelled:
        assert row["usage"] is not None
        frames = frames_of(row["frames"])
        said, told = row["said"] or "", only(frames, "final_response").data.get("final_response_text") or ""
        # A piece that the model had given and nobody had been sent yet is kept too.
        assert said == told
        assert said.startswith(text_of(frames))
        if said:
            bill = bills[row["stream_id"]]
            assert (bill["outcome"], bill["estimated"]) == ("abandoned", True)
            assert bill["completion_tokens"] > 0
