"""Turns: run one, in a conversation that is named or in one that the service names."""

from fastapi import APIRouter, Request, Response

from app.api.body import DoorRoute
from app.api.deps import Chatting, ConversationPath, DoorDep, KeyHeader, LastEvent, RuntimeDep
from app.api.documents import operation_responses
from app.api.negotiation import form_of
from app.api.operations import Exchange
from app.api.schemas.turns import TurnBody
from app.domain.errors import (
    ConversationBusyError,
    KeyReusedError,
    NotFoundError,
    PauseHeldError,
    PersonaNotFoundError,
    RateLimitedError,
)
from app.domain.ids import conversation_id_for, fresh

router = APIRouter(route_class=DoorRoute, tags=["turns"])
_RESPONSES = operation_responses(
    NotFoundError, PersonaNotFoundError, ConversationBusyError, PauseHeldError, KeyReusedError, RateLimitedError
)


@router.post("/v1/conversations/{conversation_id}/turns", responses=_RESPONSES, response_model=None)
async def run_turn(
    *,
    conversation_id: ConversationPath,
    body: TurnBody,
    request: Request,
    runtime: RuntimeDep,
    door: DoorDep,
    asker: Chatting,
    key: KeyHeader,
    last: LastEvent,
) -> Response:
    """Run a turn. A conversation that does not exist is made; its owner is whoever makes it."""
    form = form_of(request.headers)
    caller = asker.caller(body.user_id, body.organization_id)
    turn = body.to_domain(caller, conversation_id, key)
    exchange = Exchange(form, runtime, door, caller, last, body.on_disconnect)
    return await exchange.answer(lambda on_wait: runtime.start_turn(turn, on_wait))


@router.post("/v1/turns", responses=_RESPONSES, response_model=None)
async def run_turn_in_new_conversation(
    *,
    body: TurnBody,
    request: Request,
    runtime: RuntimeDep,
    door: DoorDep,
    asker: Chatting,
    key: KeyHeader,
    last: LastEvent,
) -> Response:
    """Run a turn in a new conversation; `X-Conversation-Id` tells its name.

    With an idempotency key, the name follows from organization, user and key.
    """
    form = form_of(request.headers)
    caller = asker.caller(body.user_id, body.organization_id)
    name = fresh("conv") if key is None else conversation_id_for(caller.organization_id, caller.user_id, key)
    turn = body.to_domain(caller, name, key)
    exchange = Exchange(form, runtime, door, caller, last, body.on_disconnect)
    return await exchange.answer(lambda on_wait: runtime.start_turn(turn, on_wait))
