"""The runtime for a host in the same process: the public operations as iterators of chunks.

What a refusal is over HTTP is one `error` chunk here, and the iterator ends (R78, R79). The wire's `end` frames and
comments are left out: the last chunk of an operation says how it ended.
"""

from collections.abc import AsyncGenerator, Awaitable, Sequence
from typing import Any

from app.domain.errors import AppError
from app.domain.generators import aclosing
from app.domain.jsontext import loads
from app.domain.tools import ToolResult
from app.domain.turn import Caller, Pause, ResultsInput, TurnInput
from app.domain.views import PartialResults, Started
from app.streaming.frames import is_end, split
from app.turn.delivery import emitter
from app.turn.facade.service import AgentRuntime

Chunk = dict[str, Any]
Chunks = AsyncGenerator[Chunk, None]
ID = b"id: "
DATA = b"\ndata: "


class Host:
    """A host's view of the runtime. A chunk is the JSON object that the stream's frame holds."""

    def __init__(self, runtime: AgentRuntime) -> None:
        """Keep the runtime, which must have been started."""
        self._runtime = runtime

    async def process_request(self, turn: TurnInput) -> Chunks:
        """Run a turn; the last chunk is the actionable request, the final response or an error."""
        async with aclosing(self._chunks(self._runtime.start_turn(turn), "")) as chunks:
            async for chunk in chunks:
                yield chunk

    async def handle_tool_result(self, caller: Caller, stream_id: str, result: ToolResult) -> Chunks:
        """Continue the pause that the stream holds with one result."""
        async with aclosing(self.handle_tool_results(caller, stream_id, [result])) as chunks:
            async for chunk in chunks:
                yield chunk

    async def handle_tool_results(
        self, caller: Caller, stream_id: str, results: Sequence[ToolResult], pause_id: str | None = None
    ) -> Chunks:
        """Continue the pause that the stream holds with several results."""
        passed = ResultsInput(caller, tuple(results), stream_id=stream_id, pause_id=pause_id)
        async with aclosing(self._chunks(self._runtime.pass_results(passed), stream_id)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def resume_external_tool_request(
        self, caller: Caller, pending: Pause, results: Sequence[ToolResult]
    ) -> Chunks:
        """Take the pending request that a conversation stores onto a new stream, with its results."""
        passed = ResultsInput(
            caller, tuple(results), conversation_id=pending.conversation_id, pause_id=pending.pause_id
        )
        async with aclosing(self._chunks(self._runtime.resume(passed), pending.stream_id)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def get_pending_external_tool_request(self, caller: Caller, conversation_id: str) -> Pause | None:
        """Give the pause that the conversation holds; NotFoundError when the caller has no such conversation."""
        return await self._runtime.pending_request(caller, conversation_id)

    async def _chunks(self, starting: Awaitable[Started | PartialResults], stream_id: str) -> Chunks:
        try:
            started = await starting
            if isinstance(started, PartialResults):
                return
        except AppError as refusal:
            yield _refused(refusal, stream_id)
            return
        async with aclosing(await self._runtime.open_operation(started)) as reading:
            async for frames in reading:
                for frame in split(frames):
                    if frame.startswith(ID) and not is_end(frame):
                        yield loads(frame[frame.index(DATA) + len(DATA) :])


def _refused(refusal: AppError, stream_id: str) -> Chunk:
    told = emitter.error(refusal.code, refusal.message, refusal.details)
    return {"type": told.type, "stream_id": stream_id, "is_final": True, **told.fields}
