"""What routes are given: the runtime, the door, and for whom the call is.

Each is a coroutine, though none waits: anything else the framework would run in a thread, at the cost of a small turn.
"""

from typing import Annotated, cast

from fastapi import Depends, Path, Query, Request

from app.api.policy import Asker, Door
from app.api.runtime import Runtime
from app.api.schemas.base import CONVERSATION_ID
from app.auth.principal import Principal, Scope
from app.domain.text import clean_text
from app.domain.turn import Caller

PAGE_SIZE = 50
LARGEST_PAGE = 200


async def runtime_of(request: Request) -> Runtime:
    """Give the runtime that the application's lifespan has started."""
    return cast("Runtime", request.app.state.runtime)


async def door_of(request: Request) -> Door:
    """Give the door's rules."""
    return cast("Door", request.app.state.door)


UserQuery = Annotated[
    str | None,
    Query(
        max_length=256,
        description="Whose things are meant. Left out: `local` without authentication, else the key's name.",
    ),
]
OrganizationQuery = Annotated[
    str | None, Query(max_length=128, description="The organization; with authentication it must be the key's own.")
]


async def asker_of(request: Request, user_id: UserQuery = None, organization_id: OrganizationQuery = None) -> Asker:
    """Say who calls, and what the address says about user and organization."""
    principal: Principal = request.state.principal
    user = clean_text(user_id) if user_id and user_id.strip() else None
    organization = clean_text(organization_id).strip() if organization_id else None
    return Asker(principal, user, organization)


async def chatting(asker: Annotated[Asker, Depends(asker_of)]) -> Asker:
    """Give the asker of a call that needs the scope `chat`; its caller depends on the body."""
    asker.require(Scope.CHAT)
    return asker


async def reading(asker: Annotated[Asker, Depends(asker_of)]) -> Caller:
    """Give the caller of a call that needs the scope `read`."""
    asker.require(Scope.READ)
    return asker.caller()


async def operating(asker: Annotated[Asker, Depends(asker_of)]) -> Caller:
    """Give the caller of a call that needs the scope `operator`."""
    asker.require(Scope.OPERATOR)
    return asker.caller()


RuntimeDep = Annotated[Runtime, Depends(runtime_of)]
DoorDep = Annotated[Door, Depends(door_of)]
Chatting = Annotated[Asker, Depends(chatting)]
Reading = Annotated[Caller, Depends(reading)]
Operating = Annotated[Caller, Depends(operating)]
ConversationPath = Annotated[
    str, Path(pattern=CONVERSATION_ID, description="The conversation: 1 to 128 of `A-Z a-z 0-9 . _ : -`.")
]
StreamPath = Annotated[str, Path(max_length=128, description="The stream.")]
CursorQuery = Annotated[str | None, Query(max_length=512, description="`next_cursor` of the page before.")]
LimitQuery = Annotated[int, Query(ge=1, le=LARGEST_PAGE, description="How many items a page has at most.")]
