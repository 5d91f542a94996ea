"""Personas and skills as a client reads them."""

from pydantic import Field

from app.api.schemas.base import Output


class PersonaOut(Output):
    """A persona that can be selected."""

    persona_id: str
    name: str
    description: str
    model: str
    tools: tuple[str, ...]
    skills: tuple[str, ...] = Field(description="The skills that are on in its sessions unless they are switched off.")
    is_default: bool
    version: str | None
    default_language: str | None
    input_modalities: tuple[str, ...] = Field(description="What its inputs may be made of; none named is all.")


class PersonaListOut(Output):
    """All personas."""

    items: tuple[PersonaOut, ...]


class SkillOut(Output):
    """A skill that sessions can switch on and off."""

    skill_id: str
    description: str
    category: str
    license: str | None


class SkillListOut(Output):
    """All skills."""

    items: tuple[SkillOut, ...]
