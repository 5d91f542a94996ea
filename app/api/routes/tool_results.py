"""Results of host tools: continue a pause on its stream, or take it onto a new one."""

from fastapi import APIRouter, Response

from app.api.calls import Starting
from app.api.deps import ConversationPath, StreamPath
from app.api.documents import operation_responses
from app.api.schemas.tool_results import ResumeBody, ToolResultsBody
from app.api.starting import StartingRoute
from app.domain.errors import ClosedStreamError, InvalidStateError, KeyReusedError, NotFoundError, RateLimitedError

router = APIRouter(route_class=StartingRoute, tags=["pauses"])
_RESPONSES = operation_responses(NotFoundError, InvalidStateError, ClosedStreamError, KeyReusedError, RateLimitedError)


@router.post("/v1/streams/{stream_id}/tool-results", responses=_RESPONSES, response_model=None)
async def pass_tool_results(
    *,
    stream_id: StreamPath,
    body: ToolResultsBody,
    call: Starting,
) -> Response:
    """Pass results for the pause that the stream holds; the turn goes on, on the same stream."""
    exchange = call.exchange(body)
    results = body.to_domain(exchange.caller, key=call.key, stream_id=stream_id)
    return await exchange.answer(lambda _: call.runtime.pass_results(results))


@router.post("/v1/conversations/{conversation_id}/resume", responses=_RESPONSES, response_model=None)
async def resume_pause(
    *,
    conversation_id: ConversationPath,
    body: ResumeBody,
    call: Starting,
) -> Response:
    """Take the conversation's pause onto a new stream and pass its results; the turn goes on there."""
    exchange = call.exchange(body)
    results = body.to_domain(exchange.caller, key=call.key, conversation_id=conversation_id)
    return await exchange.answer(lambda _: call.runtime.resume(results))
