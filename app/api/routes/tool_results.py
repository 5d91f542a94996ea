"""Results of host tools: continue a pause on its stream, or take it onto a new one."""

from fastapi import APIRouter, Request, Response

from app.api.body import DoorRoute
from app.api.deps import Chatting, ConversationPath, DoorDep, KeyHeader, LastEvent, RuntimeDep, StreamPath
from app.api.documents import operation_responses
from app.api.negotiation import form_of
from app.api.operations import answer, partial_object
from app.api.schemas.tool_results import ResumeBody, ToolResultsBody
from app.domain.errors import ClosedStreamError, InvalidStateError, KeyReusedError, NotFoundError
from app.domain.views import PartialResults

router = APIRouter(route_class=DoorRoute, tags=["pauses"])
_RESPONSES = operation_responses(NotFoundError, InvalidStateError, ClosedStreamError, KeyReusedError)


@router.post("/v1/streams/{stream_id}/tool-results", responses=_RESPONSES, response_model=None)
async def pass_tool_results(
    *,
    stream_id: StreamPath,
    body: ToolResultsBody,
    request: Request,
    runtime: RuntimeDep,
    door: DoorDep,
    asker: Chatting,
    key: KeyHeader,
    last: LastEvent,
) -> Response:
    """Pass results for the pause that the stream holds; the turn goes on, on the same stream."""
    form = form_of(request.headers)
    caller = asker.caller(body.user_id, body.organization_id)
    results = body.to_domain(caller, key=key, stream_id=stream_id)
    started = await runtime.pass_results(results)
    if isinstance(started, PartialResults):
        return partial_object(started)
    return await answer(form, runtime, caller, started, after=last, grace=door.policy.drain_grace_seconds)


@router.post("/v1/conversations/{conversation_id}/resume", responses=_RESPONSES, response_model=None)
async def resume_pause(
    *,
    conversation_id: ConversationPath,
    body: ResumeBody,
    request: Request,
    runtime: RuntimeDep,
    door: DoorDep,
    asker: Chatting,
    key: KeyHeader,
    last: LastEvent,
) -> Response:
    """Take the conversation's pause onto a new stream and pass its results; the turn goes on there."""
    form = form_of(request.headers)
    caller = asker.caller(body.user_id, body.organization_id)
    results = body.to_domain(caller, key=key, conversation_id=conversation_id)
    started = await runtime.resume(results)
    if isinstance(started, PartialResults):
        return partial_object(started)
    return await answer(form, runtime, caller, started, after=last, grace=door.policy.drain_grace_seconds)
