"""Turns: run one, in a conversation that is named or in one that the service names."""

from fastapi import APIRouter, Response

from app.api.calls import Starting
from app.api.deps import ConversationPath
from app.api.documents import operation_responses
from app.api.schemas.turns import TurnBody
from app.api.starting import StartingRoute
from app.domain.errors import (
    ConversationBusyError,
    KeyReusedError,
    NotFoundError,
    PauseHeldError,
    PersonaNotFoundError,
    RateLimitedError,
)
from app.domain.ids import conversation_id_for, fresh

router = APIRouter(route_class=StartingRoute, tags=["turns"])
_RESPONSES = operation_responses(
    NotFoundError, PersonaNotFoundError, ConversationBusyError, PauseHeldError, KeyReusedError, RateLimitedError
)


@router.post("/v1/conversations/{conversation_id}/turns", responses=_RESPONSES, response_model=None)
async def run_turn(
    *,
    conversation_id: ConversationPath,
    body: TurnBody,
    call: Starting,
) -> Response:
    """Run a turn. A conversation that does not exist is made; its owner is whoever makes it."""
    exchange = call.exchange(body)
    turn = body.to_domain(exchange.caller, conversation_id, call.key)
    return await exchange.answer(lambda on_wait: call.runtime.start_turn(turn, on_wait))


@router.post("/v1/turns", responses=_RESPONSES, response_model=None)
async def run_turn_in_new_conversation(
    *,
    body: TurnBody,
    call: Starting,
) -> Response:
    """Run a turn in a new conversation; `X-Conversation-Id` tells its name.

    With an idempotency key, the name follows from organization, user and key.
    """
    exchange = call.exchange(body)
    caller, key = exchange.caller, call.key
    name = fresh("conv") if key is None else conversation_id_for(caller.organization_id, caller.user_id, key)
    turn = body.to_domain(caller, name, key)
    return await exchange.answer(lambda on_wait: call.runtime.start_turn(turn, on_wait))
