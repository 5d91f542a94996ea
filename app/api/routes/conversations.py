"""Conversations: make, list, read, change, erase; and their messages."""

from http import HTTPStatus
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from app.api.body import DoorRoute
from app.api.deps import (
    PAGE_SIZE,
    Chatting,
    ConversationPath,
    CursorQuery,
    LimitQuery,
    Reading,
    RuntimeDep,
)
from app.api.documents import refusals
from app.api.schemas.conversations import (
    ConversationBody,
    ConversationChange,
    ConversationOut,
    MessageOut,
    PageOut,
)
from app.api.schemas.usage import ConversationUsageOut
from app.domain.errors import AlreadyExistsError, NotFoundError, PersonaNotFoundError

router = APIRouter(prefix="/v1/conversations", route_class=DoorRoute, tags=["conversations"])


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    response_model=ConversationOut,
    responses=refusals(AlreadyExistsError, PersonaNotFoundError, body=True),
)
async def create_conversation(
    body: ConversationBody, response: Response, runtime: RuntimeDep, asker: Chatting
) -> object:
    """Make a conversation, with what was said before if there is any."""
    made = await runtime.create_conversation(
        asker.caller(body.user_id, body.organization_id),
        conversation_id=body.conversation_id,
        session_id=body.session_id,
        persona_id=body.persona_id,
        title=body.title,
        metadata=body.metadata,
        messages=tuple(message.to_domain() for message in body.messages),
    )
    response.headers["Location"] = f"/v1/conversations/{made.conversation_id}"
    return made


@router.get("", response_model=PageOut[ConversationOut], responses=refusals())
async def list_conversations(
    runtime: RuntimeDep, caller: Reading, cursor: CursorQuery = None, limit: LimitQuery = PAGE_SIZE
) -> object:
    """List the caller's conversations, the last changed first."""
    return await runtime.list_conversations(caller, cursor, limit)


@router.get("/{conversation_id}", response_model=ConversationOut, responses=refusals(NotFoundError))
async def read_conversation(conversation_id: ConversationPath, runtime: RuntimeDep, caller: Reading) -> object:
    """Give a conversation, and which stream runs in it."""
    return await runtime.get_conversation(caller, conversation_id)


@router.get("/{conversation_id}/usage", response_model=ConversationUsageOut, responses=refusals(NotFoundError))
async def read_conversation_usage(conversation_id: ConversationPath, runtime: RuntimeDep, caller: Reading) -> object:
    """Give what a conversation has used so far, by model."""
    return await runtime.conversation_usage(caller, conversation_id)


@router.patch("/{conversation_id}", response_model=ConversationOut, responses=refusals(NotFoundError, body=True))
async def change_conversation(
    conversation_id: ConversationPath, body: ConversationChange, runtime: RuntimeDep, asker: Chatting
) -> object:
    """Rename a conversation, or replace its metadata."""
    caller = asker.caller(body.user_id, body.organization_id)
    return await runtime.update_conversation(caller, conversation_id, title=body.title, metadata=body.metadata)


@router.delete(
    "/{conversation_id}",
    status_code=HTTPStatus.NO_CONTENT,
    response_model=None,
    responses=refusals(NotFoundError),
)
async def erase_conversation(conversation_id: ConversationPath, runtime: RuntimeDep, asker: Chatting) -> None:
    """Erase a conversation with its messages, streams and pauses."""
    await runtime.delete_conversation(asker.caller(), conversation_id)


@router.get("/{conversation_id}/messages", response_model=PageOut[MessageOut], responses=refusals(NotFoundError))
async def list_messages(
    *,
    conversation_id: ConversationPath,
    runtime: RuntimeDep,
    caller: Reading,
    cursor: CursorQuery = None,
    limit: LimitQuery = PAGE_SIZE,
    order: Annotated[Literal["asc", "desc"], Query(description="Oldest or newest first.")] = "asc",
) -> object:
    """List a conversation's messages by position."""
    return await runtime.list_messages(caller, conversation_id, cursor=cursor, limit=limit, descending=order == "desc")
