"""Pauses for tests: made by a scripted model, answered, and looked at in the tables."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from app.domain.messages import ToolCall
from app.domain.tools import ToolResult
from app.domain.turn import Pause
from app.domain.views import Started
from app.providers.base import ModelRequest
from app.providers.scripted import Hold, Piece, ScriptedProvider, Step, call
from app.turn.facade.host import Chunk
from tests.databases import rows
from tests.stage import ADA, CHAT, WEATHER, Stage, running_stage, turn_input, wire

T = TypeVar("T")
PATIENCE: Final = 30.0
MODEL: Final = "scripted:small"
TABLES: Final = (
    "conversations",
    "messages",
    "rolling_summaries",
    "inbound_messages",
    "pending_external_tool_requests",
    "streams",
    "stream_events",
)
Tables = dict[str, list[dict[str, Any]]]


@asynccontextmanager
async def scripted(database: str, *steps: Step, **settings: Any) -> AsyncIterator[Stage]:
    """Run a stage whose model follows the steps."""
    async with running_stage(database, ScriptedProvider(steps), **{"default_model": MODEL, **settings}) as stage:
        yield stage


def weather(call_id: str, city: str = "Berlin") -> ToolCall:
    """Make a call for the host's tool."""
    return call(WEATHER.name, {"city": city}, id=call_id)


def asks_for(*call_ids: str) -> list[ToolCall]:
    """Make a model's step that calls the host's tool."""
    return [weather(call_id) for call_id in call_ids]


async def paused(stage: Stage, *call_ids: str, text: str = "What is the weather?", **turn: Any) -> Pause:
    """Run a turn that pauses for these calls and give the pause."""
    stage.provider.add(asks_for(*call_ids))
    chunks = await stage.play(text, tools=[WEATHER], **turn)
    assert chunks[-1]["type"] == "tool_call_request", chunks[-1]
    return await held(stage, turn.get("conversation", CHAT))


async def speaking(stage: Stage, *more: Piece, text: str = "Hello.", conversation: str = CHAT) -> tuple[Started, Hold]:
    """Start a turn that has said "So far" and waits in the middle of its answer, which goes on with `more`."""
    hold = Hold()
    stage.provider.add(["So far", hold, *more])
    started = await stage.runtime.start_turn(turn_input(text, conversation=conversation))
    await asyncio.wait_for(hold.reached.wait(), PATIENCE)
    return started, hold


async def held(stage: Stage, conversation: str = CHAT) -> Pause:
    """Give the pause that the conversation must hold."""
    pause = await stage.pending(conversation)
    assert pause is not None, "no pause is held"
    return pause


async def by_results(stage: Stage, pause: Pause, *results: ToolResult) -> list[Chunk]:
    """Answer a pause on its stream."""
    return await stage.pass_results(pause.stream_id, *results)


async def by_resume(stage: Stage, pause: Pause, *results: ToolResult) -> list[Chunk]:
    """Answer a pause by a resume."""
    return await stage.resume(pause, *results)


Answer = Callable[..., Coroutine[Any, Any, list[Chunk]]]


def codes(chunks: Sequence[Chunk]) -> list[Any]:
    """Give the code of each chunk; a refusal is a list of one."""
    return [chunk.get("code") for chunk in chunks]


async def tables(database: str) -> Tables:
    """Give every row of every table but the replicas', each table in a fixed order."""
    found: Tables = {}
    for table in TABLES:
        query = f"SELECT to_json(t) AS row FROM {table} t ORDER BY t::text"  # noqa: S608 - a name of this module
        found[table] = [dict(record) for record in await rows(database, query)]
    return found


async def status(stage: Stage, stream_id: str) -> str:
    """Give a stream's status."""
    return (await stage.runtime.stream_state(ADA, stream_id)).status.value


def told(request: ModelRequest) -> list[dict[str, Any]]:
    """Give what a request told the model, the persona's prompt left out."""
    return wire(request)[1:]


async def until(condition: Callable[[], Awaitable[T | None]]) -> T:
    """Ask again and again until the answer is something, at most five seconds long."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await condition()
            if found:
                return found
            await asyncio.sleep(0.01)


def forsake(stage: Stage) -> None:
    """Let the tasks of all operations go, as they are at a kill: nothing of what they do is ended."""
    for task in list(stage.runtime._lifecycle.tasks._running):
        task.cancel()


async def let_die(stage: Stage) -> None:
    """Forsake all operations once what they said is durable, and wait until the process knows nothing of them.

    A write of the log that is still on its way would bring a takeover more than its guards have judged; it looks again
    then, which a test that sweeps by itself does not expect.
    """
    await stage.runtime._services.log.settle()
    forsake(stage)

    async def all_gone() -> bool:
        return not stage.runtime._services.rings.all()

    await until(all_gone)


@asynccontextmanager
async def meanwhile(coroutine: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Run something beside the block; it must have ended when the block is left, and is bounded."""
    task = asyncio.create_task(coroutine)
    try:
        yield task
        async with asyncio.timeout(PATIENCE):
            await task
    finally:
        task.cancel()


async def waiting(stage: Stage, conversation: str = CHAT) -> int:
    """Count the turns that wait for the conversation."""
    query = (
        "SELECT count(*) FROM inbound_messages JOIN conversations ON id = conversation"
        " WHERE status = 'waiting' AND conversation_id = $1"
    )
    return int((await rows(stage.database, query, conversation))[0][0])
