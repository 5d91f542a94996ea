"""How an operation that has started is answered, in the form that the client asked for."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from app.api.negotiation import JSON, Form
from app.api.runtime import Runtime
from app.api.schemas.streams import StreamOut
from app.api.schemas.tool_results import PartialOut
from app.api.sse import FrameResponse, ObjectResponse
from app.domain.jsontext import dumps
from app.domain.turn import Caller
from app.domain.views import Cursor, PartialResults, Started, StreamView


async def answer(
    form: Form, runtime: Runtime, caller: Caller, started: Started, *, after: Cursor | None, grace: float
) -> Response:
    """Answer with the operation's frames (those after a cursor), with its outcome, or with its name."""
    headers = {"X-Stream-Id": started.stream_id, "X-Conversation-Id": started.conversation_id}
    if started.replayed:
        headers["Idempotency-Replayed"] = "true"
    if form is Form.ASYNC:
        return _accepted(started, headers)
    frames = await runtime.open_operation(started, after)
    if form is Form.EVENTS:
        return FrameResponse(frames, headers=headers, grace=grace)

    async def outcome() -> Mapping[str, Any]:
        return stream_object(await runtime.stream_state(caller, started.stream_id))

    return ObjectResponse(frames, outcome, headers=headers, grace=grace)


def partial_object(partial: PartialResults) -> Response:
    """Tell what a pause still waits for."""
    body = PartialOut.model_validate(partial).model_dump(mode="json")
    return Response(dumps(body), headers={"Cache-Control": "no-store"}, media_type=JSON)


def stream_object(view: StreamView) -> dict[str, Any]:
    """Give a stream's state in its public form."""
    return StreamOut.model_validate(view).model_dump(mode="json")


def _accepted(started: Started, headers: dict[str, str]) -> Response:
    body = {
        "stream_id": started.stream_id,
        "conversation_id": started.conversation_id,
        "turn_id": started.turn_id,
    }
    more = {"Location": f"/v1/streams/{started.stream_id}", "Preference-Applied": "respond-async"}
    return Response(dumps(body), HTTPStatus.ACCEPTED.value, {**headers, **more, "Cache-Control": "no-store"}, JSON)
