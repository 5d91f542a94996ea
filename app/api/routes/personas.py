"""Personas: what a turn can select."""

from fastapi import APIRouter

from app.api.body import DoorRoute
from app.api.deps import Reading, RuntimeDep
from app.api.documents import refusals
from app.api.schemas.personas import PersonaListOut, PersonaOut
from app.domain.errors import PersonaNotFoundError

router = APIRouter(prefix="/v1/personas", route_class=DoorRoute, tags=["personas"])


@router.get("", response_model=PersonaListOut, responses=refusals())
async def list_personas(runtime: RuntimeDep, _: Reading) -> object:
    """List the personas; the default one is marked."""
    return {"items": runtime.personas()}


@router.get("/{persona_id}", response_model=PersonaOut, responses=refusals(PersonaNotFoundError))
async def read_persona(persona_id: str, runtime: RuntimeDep, _: Reading) -> object:
    """Give one persona."""
    return runtime.persona(persona_id)
