"""Results of host tools: continue a pause on its stream, or take it onto a new one."""

from fastapi import APIRouter, Request, Response

from app.api.body import DoorRoute
from app.api.deps import Chatting, ConversationPath, DoorDep, KeyHeader, LastEvent, RuntimeDep, StreamPath
from app.api.documents import operation_responses
from app.api.negotiation import form_of
from app.api.operations import Exchange
from app.api.schemas.tool_results import ResumeBody, ToolResultsBody
from app.domain.errors import ClosedStreamError, InvalidStateError, KeyReusedError, NotFoundError, RateLimitedError

router = APIRouter(route_class=DoorRoute, tags=["pauses"])
_RESPONSES = operation_responses(NotFoundError, InvalidStateError, ClosedStreamError, KeyReusedError, RateLimitedError)


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
    exchange = Exchange(form, runtime, door, caller, last, body.on_disconnect)
    return await exchange.answer(lambda _: runtime.pass_results(results))


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
    exchange = Exchange(form, runtime, door, caller, last, body.on_disconnect)
    return await exchange.answer(lambda _: runtime.resume(results))
