"""Personas and skills: what a turn and a session can select."""

from fastapi import APIRouter

from app.api.body import DoorRoute
from app.api.deps import Reading, RuntimeDep
from app.api.documents import refusals
from app.api.schemas.personas import PersonaListOut, PersonaOut, SkillListOut
from app.domain.errors import PersonaNotFoundError

router = APIRouter(prefix="/v1", route_class=DoorRoute, tags=["personas"])


@router.get("/personas", response_model=PersonaListOut, responses=refusals())
async def list_personas(runtime: RuntimeDep, _: Reading) -> object:
    """List the personas; the default one is marked."""
    return {"items": runtime.personas()}


@router.get("/personas/{persona_id}", response_model=PersonaOut, responses=refusals(PersonaNotFoundError))
async def read_persona(persona_id: str, runtime: RuntimeDep, _: Reading) -> object:
    """Give one persona."""
    return runtime.persona(persona_id)


@router.get("/skills", response_model=SkillListOut, responses=refusals())
async def list_skills(runtime: RuntimeDep, _: Reading) -> object:
    """List the skills that sessions can switch on and off."""
    return {"items": runtime.skills()}
