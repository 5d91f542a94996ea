"""Sessions: what was done in them, for whoever has to explain an agent's behaviour, and what they change."""

from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from app.api.body import DoorRoute
from app.api.deps import PAGE_SIZE, Chatting, CursorQuery, LimitQuery, Reading, RuntimeDep
from app.api.documents import refusals
from app.api.schemas.conversations import PageOut
from app.api.schemas.sessions import OverridesBody, OverridesOut, TraceEntryOut, TraitsBody, TraitsOut
from app.domain.errors import InvalidStateError, NotFoundError, PersonaNotFoundError

router = APIRouter(prefix="/v1/sessions", route_class=DoorRoute, tags=["sessions"])

SessionPath = Annotated[str, Path(min_length=1, max_length=256, description="The session.")]


@router.get("/{session_id}/trace", response_model=PageOut[TraceEntryOut], responses=refusals(NotFoundError))
async def read_trace(
    *,
    session_id: SessionPath,
    runtime: RuntimeDep,
    caller: Reading,
    cursor: CursorQuery = None,
    limit: LimitQuery = PAGE_SIZE,
    order: Annotated[Literal["asc", "desc"], Query(description="Oldest or newest first.")] = "asc",
) -> object:
    """List what operations of the session did: model requests, tool calls, failures, ends, and how inputs begin."""
    return await runtime.session_trace(caller, session_id, cursor=cursor, limit=limit, descending=order == "desc")


@router.get("/{session_id}/overrides", response_model=OverridesOut, responses=refusals(NotFoundError))
async def read_overrides(session_id: SessionPath, runtime: RuntimeDep, caller: Reading) -> object:
    """Give the options, preferences and skills that the session has set for its turns."""
    return await runtime.session_overrides(caller, session_id)


@router.patch("/{session_id}/overrides", response_model=OverridesOut, responses=refusals(InvalidStateError, body=True))
async def change_overrides(
    session_id: SessionPath, body: OverridesBody, runtime: RuntimeDep, asker: Chatting
) -> object:
    """Change them from the session's next turn on."""
    caller = asker.caller(body.user_id, body.organization_id)
    return await runtime.change_session_overrides(caller, session_id, body.to_domain())


@router.delete(
    "/{session_id}/overrides",
    status_code=HTTPStatus.NO_CONTENT,
    response_model=None,
    responses=refusals(InvalidStateError),
)
async def reset_overrides(session_id: SessionPath, runtime: RuntimeDep, asker: Chatting) -> None:
    """Take all of them back."""
    await runtime.reset_session_overrides(asker.caller(), session_id)


@router.get("/{session_id}/traits", response_model=TraitsOut, responses=refusals(PersonaNotFoundError))
async def read_traits(
    session_id: SessionPath,
    runtime: RuntimeDep,
    caller: Reading,
    persona_id: Annotated[
        str | None, Query(max_length=256, description="Whose traits. Left out: the default persona's.")
    ] = None,
) -> object:
    """Give a persona's traits as the session has them; a session that has changed none has the persona's own."""
    return await runtime.session_traits(caller, session_id, persona_id)


@router.patch(
    "/{session_id}/traits",
    response_model=TraitsOut,
    responses=refusals(PersonaNotFoundError, InvalidStateError, body=True),
)
async def change_traits(session_id: SessionPath, body: TraitsBody, runtime: RuntimeDep, asker: Chatting) -> object:
    """Change a persona's traits for this session alone, from its next turn on; all of what is sent, or nothing."""
    caller = asker.caller(body.user_id, body.organization_id)
    return await runtime.change_session_traits(caller, session_id, body.persona_id, body.traits)
