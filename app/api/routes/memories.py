"""Memories: what is remembered of a user, listed and forgotten."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path

from app.api.body import DoorRoute
from app.api.deps import PAGE_SIZE, Chatting, CursorQuery, LimitQuery, Reading, RuntimeDep
from app.api.documents import refusals
from app.api.schemas.conversations import PageOut
from app.api.schemas.memories import ForgottenOut, MemoryOut
from app.domain.errors import NotFoundError

router = APIRouter(prefix="/v1/memories", route_class=DoorRoute, tags=["memories"])


@router.get("", response_model=PageOut[MemoryOut], responses=refusals())
async def list_memories(
    runtime: RuntimeDep, caller: Reading, cursor: CursorQuery = None, limit: LimitQuery = PAGE_SIZE
) -> object:
    """List what is remembered of the caller, the newest first."""
    return await runtime.memories.page(caller, cursor=cursor, limit=limit)


@router.delete("", response_model=ForgottenOut, responses=refusals())
async def forget_all(runtime: RuntimeDep, asker: Chatting) -> object:
    """Forget all that is remembered of the caller."""
    return {"forgotten": await runtime.memories.remove_all(asker.caller())}


@router.delete(
    "/{memory_id}", status_code=HTTPStatus.NO_CONTENT, response_model=None, responses=refusals(NotFoundError)
)
async def forget_one(
    memory_id: Annotated[str, Path(max_length=128, description="The memory.")], runtime: RuntimeDep, asker: Chatting
) -> None:
    """Forget one thing."""
    await runtime.memories.remove(asker.caller(), memory_id)
