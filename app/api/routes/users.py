"""Users: all that is kept of one is erased."""

from typing import Annotated

from fastapi import APIRouter, Path

from app.api.body import DoorRoute
from app.api.deps import Chatting, RuntimeDep
from app.api.documents import refusals
from app.api.schemas.memories import ErasedOut
from app.domain.text import clean_text

router = APIRouter(prefix="/v1/users", route_class=DoorRoute, tags=["users"])


@router.delete("/{name}", response_model=ErasedOut, responses=refusals())
async def erase_user(
    name: Annotated[str, Path(min_length=1, max_length=256, description="The user, by `user_id`.")],
    runtime: RuntimeDep,
    asker: Chatting,
) -> object:
    """Erase a user's conversations with all that belongs to them, documents, memories, and what sessions keep."""
    return {"conversations": await runtime.users.erase(asker.caller(clean_text(name)))}
