"""Sessions: what was done in them, for whoever has to explain an agent's behaviour."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from app.api.body import DoorRoute
from app.api.deps import PAGE_SIZE, CursorQuery, LimitQuery, Reading, RuntimeDep
from app.api.documents import refusals
from app.api.schemas.conversations import PageOut
from app.api.schemas.sessions import TraceEntryOut
from app.domain.errors import NotFoundError

router = APIRouter(prefix="/v1/sessions", route_class=DoorRoute, tags=["sessions"])


@router.get("/{session_id}/trace", response_model=PageOut[TraceEntryOut], responses=refusals(NotFoundError))
async def read_trace(
    *,
    session_id: Annotated[str, Path(max_length=256, description="The session.")],
    runtime: RuntimeDep,
    caller: Reading,
    cursor: CursorQuery = None,
    limit: LimitQuery = PAGE_SIZE,
    order: Annotated[Literal["asc", "desc"], Query(description="Oldest or newest first.")] = "asc",
) -> object:
    """List what operations of the session did: model requests, tool calls, failures, ends, and how inputs begin."""
    return await runtime.session_trace(caller, session_id, cursor=cursor, limit=limit, descending=order == "desc")
