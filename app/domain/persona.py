"""A persona: who answers, with which model and which of the runtime's tools."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Id = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
MODEL_ID = r"^[A-Za-z0-9_-]+:.+$"


class PersonaOptions(BaseModel):
    """Options of the model call; what is left out is not sent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, ge=1)


class Persona(BaseModel):
    """A persona as its file says. Without `model`, the runtime's default model answers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Id
    name: str = Field(min_length=1, max_length=120)
    description: str = Field(default="", max_length=2000)
    model: str | None = Field(default=None, pattern=MODEL_ID)
    system_prompt: str = Field(min_length=1)
    tools: tuple[str, ...] = ()
    options: PersonaOptions = PersonaOptions()
    max_tool_iterations: int | None = Field(default=None, ge=1, le=50)

    def to_json(self) -> dict[str, Any]:
        """Give the form that a snapshot keeps."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Persona":
        """Read the form that a snapshot keeps."""
        return cls.model_validate(dict(stored))
