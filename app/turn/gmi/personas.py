"""The personas that can be selected: one file each, validated when it is read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.domain.errors import ConfigurationError, PersonaNotFoundError
from app.domain.persona import Persona
from app.domain.tools import FailureMode
from app.domain.turn import Effort, OnExpiry
from app.turn.gmi.session import MOST_ENTRIES


class OptionsInFile(BaseModel):
    """Options of the model call, as a file gives them."""

    model_config = ConfigDict(extra="forbid")

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    reasoning_effort: Effort | None = None
    extra_body: dict[str, Any] = {}


class TraceInFile(BaseModel):
    """Limits of the reasoning trace, as a file gives them."""

    model_config = ConfigDict(extra="forbid")

    max_entries: int | None = Field(default=None, ge=1, le=MOST_ENTRIES)
    max_message_length: int | None = Field(default=None, ge=1, le=100_000)


class ContextInFile(BaseModel):
    """What of a conversation is told, as a file gives it."""

    model_config = ConfigDict(extra="forbid")

    max_messages: int | None = Field(default=None, ge=1)


class SelfImprovementInFile(BaseModel):
    """What a persona may change of itself, as a file gives it."""

    model_config = ConfigDict(extra="forbid")

    least_temperature: float | None = Field(default=None, ge=0, le=2)
    most_temperature: float | None = Field(default=None, ge=0, le=2)
    preferences: list[str] = []
    skills: list[str] = []
    most_changes: int = Field(default=10, ge=1, le=1000)


class PersonaInFile(BaseModel):
    """What a persona file may hold."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")
    name: str = Field(min_length=1, max_length=120)
    description: str = Field(default="", max_length=2000)
    model: str | None = Field(default=None, pattern=r"^[^:\s]+:\S+$")
    system_prompt: str = Field(min_length=1)
    tools: list[str] = []
    options: OptionsInFile = OptionsInFile()
    max_tool_iterations: int | None = Field(default=None, ge=1, le=50)
    pause_ttl_seconds: float | None = Field(default=None, gt=0)
    on_expiry: OnExpiry = "close"
    tool_failure_mode: FailureMode = "fail_open"
    guardrails: list[str] = []
    skills: list[str] = []
    self_improvement: SelfImprovementInFile = SelfImprovementInFile()
    reasoning_trace: TraceInFile = TraceInFile()
    conversation_context: ContextInFile = ContextInFile()


class Personas:
    """The personas that can be selected."""

    def __init__(self, personas: Mapping[str, Persona], *, default_id: str) -> None:
        """Keep them; ConfigurationError when the default is not among them."""
        if default_id not in personas:
            known = ", ".join(sorted(personas)) or "none"
            message = f"There is no default persona {default_id!r}. Set FERMATA_DEFAULT_PERSONA_ID to one of: {known}."
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
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        message = f"{path.name}: the file is not valid YAML: {error}"
        raise ConfigurationError(message) from None
    if not isinstance(content, dict):
        message = f"{path.name}: the file must hold one mapping with the persona's fields."
        raise ConfigurationError(message)
    try:
        return Persona.from_json(PersonaInFile.model_validate(content).model_dump())
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        message = f"{path.name}: {faults}"
        raise ConfigurationError(message) from None
