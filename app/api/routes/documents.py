"""Documents: take in, list, read, search, erase."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from app.api.body import DoorRoute
from app.api.deps import PAGE_SIZE, Chatting, CursorQuery, LimitQuery, Reading, RuntimeDep
from app.api.documents import refusals
from app.api.schemas.conversations import PageOut
from app.api.schemas.documents import DocumentBody, DocumentOut, PassageOut, SearchBody, SearchOut
from app.domain.documents import Lookup
from app.domain.errors import AlreadyExistsError, NotFoundError, ProviderError, TooLargeError

router = APIRouter(prefix="/v1/documents", route_class=DoorRoute, tags=["documents"])

DocumentPath = Annotated[str, Path(max_length=128, description="The document.")]


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    response_model=DocumentOut,
    responses=refusals(AlreadyExistsError, NotFoundError, TooLargeError, ProviderError, body=True),
)
async def add_document(body: DocumentBody, response: Response, runtime: RuntimeDep, asker: Chatting) -> object:
    """Take in a document: it is cut into passages, which turns and searches find from now on."""
    made = await runtime.documents.add(asker.caller(body.user_id, body.organization_id), body.to_domain())
    response.headers["Location"] = f"/v1/documents/{made.document_id}"
    return made


@router.get("", response_model=PageOut[DocumentOut], responses=refusals())
async def list_documents(
    *,
    runtime: RuntimeDep,
    caller: Reading,
    collection: Annotated[str | None, Query(max_length=64, description="Only those of this collection.")] = None,
    cursor: CursorQuery = None,
    limit: LimitQuery = PAGE_SIZE,
) -> object:
    """List the documents that the caller may find, the newest first."""
    return await runtime.documents.page(caller, collection=collection, cursor=cursor, limit=limit)


@router.post("/search", response_model=SearchOut, responses=refusals(body=True))
async def search_documents(body: SearchBody, runtime: RuntimeDep, asker: Chatting) -> object:
    """Give the passages that fit a query best, as a turn would find them."""
    lookup = Lookup(
        caller=asker.caller(body.user_id, body.organization_id),
        query=body.query,
        collections=body.collections,
        top_k=body.top_k,
        strategy=body.strategy,
        mmr_lambda=body.mmr_lambda,
        metadata=body.metadata,
    )
    return {"items": await runtime.documents.search(lookup, body.conversation_id)}


@router.get("/{document_id}", response_model=DocumentOut, responses=refusals(NotFoundError))
async def read_document(document_id: DocumentPath, runtime: RuntimeDep, caller: Reading) -> object:
    """Give what is known of a document."""
    return await runtime.documents.get(caller, document_id)


@router.get("/{document_id}/passages", response_model=PageOut[PassageOut], responses=refusals(NotFoundError))
async def list_passages(
    *,
    document_id: DocumentPath,
    runtime: RuntimeDep,
    caller: Reading,
    cursor: CursorQuery = None,
    limit: LimitQuery = PAGE_SIZE,
) -> object:
    """List a document's passages in order; their ids are those that sources are cited by."""
    return await runtime.documents.chunks(caller, document_id, cursor=cursor, limit=limit)


@router.delete(
    "/{document_id}", status_code=HTTPStatus.NO_CONTENT, response_model=None, responses=refusals(NotFoundError)
)
async def erase_document(document_id: DocumentPath, runtime: RuntimeDep, asker: Chatting) -> None:
    """Erase a document with its passages."""
    await runtime.documents.remove(asker.caller(), document_id)
