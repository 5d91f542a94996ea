"""The personas that can be selected: one file each, validated when it is read."""

from collections.abc import Mapping
from pathlib import Path

import yaml
from pydantic import ValidationError

from app.domain.errors import ConfigurationError, PersonaNotFoundError
from app.domain.persona import Persona


class Personas:
    """The personas that can be selected."""

    def __init__(self, personas: Mapping[str, Persona], *, default_id: str) -> None:
        """Keep them; ConfigurationError when the default is not among them."""
        if default_id not in personas:
            known = ", ".join(sorted(personas)) or "none"
            message = (
                f"The default persona {default_id!r} does not exist. Set FERMATA_DEFAULT_PERSONA_ID to one of: {known}."
            )
            raise ConfigurationError(message)
        self._personas = dict(personas)
        self.default_id = default_id

    def find(self, persona_id: str) -> Persona:
        """Give the persona, or raise PersonaNotFoundError."""
        persona = self._personas.get(persona_id)
        if persona is None:
            message = f"There is no persona {persona_id!r}; GET /v1/personas lists them."
            raise PersonaNotFoundError(message, persona_id=persona_id)
        return persona

    def known(self, persona_id: str) -> Persona:
        """Give the persona, or a nameless one where its file has gone: what happened must be told all the same."""
        return self._personas.get(persona_id) or Persona(id=persona_id, name=persona_id, system_prompt="-")

    def all(self) -> tuple[Persona, ...]:
        """Give every persona, by id."""
        return tuple(self._personas[name] for name in sorted(self._personas))


def load_personas(folder: Path) -> dict[str, Persona]:
    """Read every `.yaml`, `.yml` and `.json` file of a folder; ConfigurationError names file and field of a fault."""
    if not folder.is_dir():
        message = f"The personas folder {folder} does not exist; set FERMATA_PERSONAS_DIR to a folder of persona files."
        raise ConfigurationError(message)
    found: dict[str, Persona] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix not in {".yaml", ".yml", ".json"}:
            continue
        persona = _load(path)
        if persona.id in found:
            message = f"{path.name}: id: the persona {persona.id!r} is defined in another file as well."
            raise ConfigurationError(message)
        found[persona.id] = persona
    return found


def _load(path: Path) -> Persona:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        message = f"{path.name}: the file is not valid YAML: {error}"
        raise ConfigurationError(message) from None
    if not isinstance(content, dict):
        message = f"{path.name}: the file must hold one mapping with the persona's fields."
        raise ConfigurationError(message)
    try:
        return Persona.model_validate(content)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        message = f"{path.name}: {faults}"
        raise ConfigurationError(message) from None
