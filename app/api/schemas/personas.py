"""Personas as a client reads them."""

from app.api.schemas.base import Output


class PersonaOut(Output):
    """A persona that can be selected."""

    persona_id: str
    name: str
    description: str
    model: str
    tools: tuple[str, ...]
    is_default: bool


class PersonaListOut(Output):
    """All personas."""

    items: tuple[PersonaOut, ...]
