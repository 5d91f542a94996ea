"""Pauses that wait for their host."""

from http import HTTPStatus

from fastapi import APIRouter, Response

from app.api.body import DoorRoute
from app.api.deps import PAGE_SIZE, ConversationPath, CursorQuery, LimitQuery, Reading, RuntimeDep
from app.api.documents import refusals
from app.api.schemas.conversations import PageOut
from app.api.schemas.streams import PauseOut
from app.domain.errors import NotFoundError

router = APIRouter(route_class=DoorRoute, tags=["pauses"])


@router.get(
    "/v1/conversations/{conversation_id}/pending-request",
    response_model=PauseOut,
    responses={204: {"description": "The conversation holds no pause."}, **refusals(NotFoundError)},
)
async def read_pending_request(conversation_id: ConversationPath, runtime: RuntimeDep, caller: Reading) -> object:
    """Give the pause that the conversation holds, with the calls that still lack a result."""
    pause = await runtime.pending_request(caller, conversation_id)
    return Response(status_code=HTTPStatus.NO_CONTENT.value) if pause is None else pause


@router.get("/v1/pending-requests", response_model=PageOut[PauseOut], responses=refusals())
async def list_pending_requests(
    runtime: RuntimeDep, caller: Reading, cursor: CursorQuery = None, limit: LimitQuery = PAGE_SIZE
) -> object:
    """List the pauses that wait for this caller, over all conversations."""
    return await runtime.pending_requests(caller, cursor, limit)
