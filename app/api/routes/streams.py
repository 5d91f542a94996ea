"""Streams: what they do, and their events again."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response

from app.api.body import DoorRoute
from app.api.deps import Chatting, DoorDep, Operating, Reading, RuntimeDep, StreamPath
from app.api.documents import EVENT_STREAM_CONTENT, refusals
from app.api.negotiation import Form, form_of
from app.api.operations import stream_object
from app.api.schemas.prompts import StreamPromptsOut
from app.api.schemas.streams import CancelBody, CancelOut, StreamOut
from app.api.schemas.usage import StreamUsageOut
from app.api.sse import FrameResponse, ObjectResponse, ReaderTerms, nothing
from app.domain.errors import GoneError, NotAcceptableError, NotFoundError, RateLimitedError
from app.domain.views import Cursor

router = APIRouter(route_class=DoorRoute, tags=["streams"])


@router.get("/v1/streams/{stream_id}", response_model=StreamOut, responses=refusals(NotFoundError))
async def read_stream(stream_id: StreamPath, runtime: RuntimeDep, caller: Reading) -> object:
    """Give a stream's state: what it answered, what it waits for, or why it failed."""
    return await runtime.stream_state(caller, stream_id)


@router.get("/v1/streams/{stream_id}/usage", response_model=StreamUsageOut, responses=refusals(NotFoundError))
async def read_stream_usage(stream_id: StreamPath, runtime: RuntimeDep, caller: Reading) -> object:
    """Give what a stream has used: every attempt at a model request, failed and cancelled ones too."""
    return await runtime.stream_usage(caller, stream_id)


@router.get("/v1/streams/{stream_id}/prompt", response_model=StreamPromptsOut, responses=refusals(NotFoundError))
async def read_stream_prompts(stream_id: StreamPath, runtime: RuntimeDep, caller: Operating) -> object:
    """Give what the models of a stream were told, where prompts are kept (`FERMATA_KEEP_PROMPTS`)."""
    return await runtime.stream_prompts(caller, stream_id)


@router.post("/v1/streams/{stream_id}/cancel", response_model=CancelOut, responses=refusals(NotFoundError, body=True))
async def cancel_stream(
    *, stream_id: StreamPath, runtime: RuntimeDep, asker: Chatting, body: CancelBody | None = None
) -> dict[str, str]:
    """End what runs on the stream, keeping what it has said, or end the pause that it holds."""
    given = body or CancelBody()
    caller = asker.caller(given.user_id, given.organization_id)
    return {"status": await runtime.cancel(caller, stream_id)}


@router.get(
    "/v1/streams/{stream_id}/events",
    response_model=None,
    responses={
        200: {"description": "The events after the cursor, and on as they come.", "content": EVENT_STREAM_CONTENT},
        204: {"description": "Nothing follows the cursor, and nothing will; an `EventSource` stops here."},
        **refusals(NotFoundError, NotAcceptableError, GoneError, RateLimitedError),
    },
)
async def follow_stream(
    *,
    stream_id: StreamPath,
    request: Request,
    runtime: RuntimeDep,
    door: DoorDep,
    caller: Reading,
    after: Annotated[str | None, Query(description="Id of the last event that was read.")] = None,
    follow: Annotated[bool, Query(description="Stay open while the stream holds a pause.")] = False,
    last_event_id: Annotated[str | None, Header(description="The same as `after`, and wins over it.")] = None,
) -> Response:
    """Replay a stream's events and follow it; with `Accept: application/json`, wait for its end and give its state."""
    form = form_of(request.headers)
    text = last_event_id or after
    cursor = Cursor.parse(text) if text else None
    slot = door.readers.take(caller, stream_id)
    try:
        frames = await runtime.open_events(caller, stream_id, cursor, follow=follow)
        if frames is None and form is not Form.OBJECT:
            slot.release()
            return Response(status_code=HTTPStatus.NO_CONTENT.value)
    except BaseException:
        slot.release()
        raise
    terms = ReaderTerms(slot, door.readers.limits.blocked_seconds)
    headers = {"X-Stream-Id": stream_id}
    if form is not Form.OBJECT:
        return FrameResponse(frames or nothing(), headers=headers, terms=terms)

    async def state() -> Mapping[str, Any]:
        return stream_object(await runtime.stream_state(caller, stream_id))

    return ObjectResponse(frames or nothing(), state, headers=headers, terms=terms)
