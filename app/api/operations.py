"""How an operation is started and answered, in the form that the client asked for."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Literal

from starlette.responses import Response

from app.api.negotiation import JSON, Form
from app.api.policy import Door
from app.api.readers import Slot
from app.api.runtime import Runtime
from app.api.schemas.streams import StreamOut
from app.api.schemas.tool_results import PartialOut
from app.api.sse import FrameResponse, ObjectResponse, ReaderTerms
from app.domain.errors import AppError, InternalError
from app.domain.frozen import dataclass
from app.domain.generators import aclosing
from app.domain.jsontext import dumps
from app.domain.turn import Caller, StreamStatus
from app.domain.views import Cursor, PartialResults, Started, StreamView
from app.streaming.frames import OPENING, PING

FIRST_BYTE_SECONDS: Final = 0.08
OnDisconnect = Literal["continue", "cancel"]
OnWait = Callable[[], None]
Start = Callable[[OnWait], Awaitable[Started | PartialResults]]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call that starts an operation: how it wants its answer, and what to do when its client goes away."""

    form: Form
    runtime: Runtime
    door: Door
    caller: Caller
    after: Cursor | None = None
    on_disconnect: OnDisconnect = "continue"

    async def answer(self, start: Start) -> Response:
        """Start the operation, and answer with its frames (those after a cursor), with its outcome, or with its name.

        `start` is given what it calls when the start is going to last: then the response begins soon, with a comment.
        A refusal before that raises; after that it can only be told inside the response.
        """
        slot = self.door.readers.take(self.caller) if self.form is not Form.ASYNC else None
        try:
            waits = asyncio.get_running_loop().create_future()
            starting = asyncio.create_task(_run(start, partial(_say, waits)), name="start of an operation")
            try:
                begins = self.form is not Form.ASYNC and await _outlasts(starting, waits)
                started = None if begins else await asyncio.shield(starting)
            except BaseException:
                starting.cancel()
                raise
            return self._late(starting, slot) if started is None else await self._begun(started, slot)
        except BaseException:
            if slot is not None:
                slot.release()
            raise

    async def _begun(self, started: Started | PartialResults, slot: Slot | None) -> Response:
        if isinstance(started, PartialResults):
            if slot is not None:
                slot.release()
            return partial_object(started)
        headers = {"X-Stream-Id": started.stream_id, "X-Conversation-Id": started.conversation_id}
        if started.replayed:
            headers["Idempotency-Replayed"] = "true"
        if slot is None:
            return _accepted(started, headers)
        slot.bind(started.stream_id)
        frames = await self.runtime.open_operation(started, self.after)
        return self._response(frames, [started], headers, slot)

    def _late(self, starting: "asyncio.Task[Started | PartialResults]", slot: Slot | None) -> Response:
        """Answer while the operation still waits to begin; a client that goes away takes it out of its queue."""
        begun: list[Started] = []
        frames = self._waiting_frames(starting, begun, slot)
        return self._response(frames, begun, {}, slot)

    def _response(
        self, frames: AsyncIterator[bytes], begun: list[Started], headers: Mapping[str, str], slot: Slot | None
    ) -> Response:
        def when_gone() -> None:
            if begun and not begun[0].replayed:
                self.runtime.cancel_operation(begun[0])

        async def outcome() -> Mapping[str, Any]:
            if not begun:
                raise InternalError
            return stream_object(await self.runtime.stream_state(self.caller, begun[0].stream_id))

        cancels = self.on_disconnect == "cancel"
        terms = ReaderTerms(slot, self.door.readers.limits.blocked_seconds, when_gone if cancels else None)
        if self.form is Form.EVENTS:
            return FrameResponse(frames, headers=headers, terms=terms)
        return ObjectResponse(frames, outcome, headers=headers, terms=terms)

    async def _waiting_frames(
        self, starting: "asyncio.Task[Started | PartialResults]", begun: list[Started], slot: Slot | None
    ) -> AsyncGenerator[bytes, None]:
        try:
            yield OPENING
            while not starting.done():
                await asyncio.wait({starting}, timeout=self.door.policy.heartbeat_seconds)
                if not starting.done():
                    yield PING
            try:
                started = await starting
            except AppError as refusal:
                yield refused(refusal)
                return
        finally:
            starting.cancel()
        if not isinstance(started, Started):
            raise InternalError
        begun.append(started)
        if slot is not None:
            slot.bind(started.stream_id)
        async with aclosing(await self.runtime.open_operation(started, self.after)) as pieces:
            async for piece in pieces:
                yield piece


def refused(refusal: AppError) -> bytes:
    """Tell a refusal inside a response that had to begin before it: two frames without ids, since nothing ran."""
    error = {"type": "error", "code": refusal.code, "message": refusal.message, "is_final": True}
    end = {"status": StreamStatus.FAILED.value, "last": 0}
    return b"event: error\ndata: %b\n\nevent: end\ndata: %b\n\n" % (dumps(error), dumps(end))


def partial_object(partial: PartialResults) -> Response:
    """Tell what a pause still waits for."""
    body = PartialOut.model_validate(partial).model_dump(mode="json")
    return Response(dumps(body), headers={"Cache-Control": "no-store"}, media_type=JSON)


def stream_object(view: StreamView) -> dict[str, Any]:
    """Give a stream's state in its public form."""
    return StreamOut.model_validate(view).model_dump(mode="json")


async def _run(start: Start, on_wait: OnWait) -> Started | PartialResults:
    return await start(on_wait)


def _say(waits: "asyncio.Future[None]") -> None:
    if not waits.done():
        waits.set_result(None)


async def _outlasts(starting: "asyncio.Task[Started | PartialResults]", waits: "asyncio.Future[None]") -> bool:
    """Tell whether the start says that it waits, and still does when the first byte is due."""
    either: set[asyncio.Future[Any]] = {starting, waits}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        await asyncio.wait({starting}, timeout=FIRST_BYTE_SECONDS)
    return not starting.done()


def _accepted(started: Started, headers: dict[str, str]) -> Response:
    body = {
        "stream_id": started.stream_id,
        "conversation_id": started.conversation_id,
        "turn_id": started.turn_id,
    }
    more = {"Location": f"/v1/streams/{started.stream_id}", "Preference-Applied": "respond-async"}
    return Response(dumps(body), HTTPStatus.ACCEPTED.value, {**headers, **more, "Cache-Control": "no-store"}, JSON)
