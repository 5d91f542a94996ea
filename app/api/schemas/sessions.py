"""What sessions keep, as operators and hosts read it, and what hosts change of it."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from app.api.schemas.base import Input, JsonObject, Name, Output, OwnedInput
from app.domain.overrides import OverridesChange
from app.domain.session import TraceType
from app.domain.traits import MOST_TRAITS
from app.domain.turn import Effort


class TraceEntryOut(Output):
    """An entry of a session's reasoning trace."""

    position: int = Field(description="Its place; a gap is where a conversation was erased.")
    at: str
    type: TraceType
    message: str
    related_id: str | None = Field(description="What it is about: a tool call or a pause.")
    details: Mapping[str, Any]
    conversation_id: str
    stream_id: str
    turn_id: str
    persona_id: str


Skills = Annotated[list[Name], Field(max_length=64)]


class SessionOptionsInput(Input):
    """Options of a session's turns. What is left out stays; null takes it back."""

    temperature: float | None = Field(default=None, ge=0, le=2, description="How freely the model chooses.")
    top_p: float | None = Field(default=None, gt=0, le=1, description="Share of likely tokens to choose from.")
    max_tokens: int | None = Field(default=None, ge=1, le=10_000_000, description="Longest answer of a model step.")
    reasoning_effort: Effort | None = Field(default=None, description="How much a model that reasons is to think.")


class OverridesBody(OwnedInput):
    """A change of a session's overrides, from its next turn on. What is left out stays."""

    options: SessionOptionsInput = Field(
        default_factory=SessionOptionsInput, description="Options of turns that name none of their own."
    )
    preferences: JsonObject = Field(
        default_factory=dict,
        description="Preferences told to the model, merged key by key; null takes one back. A turn's own go first.",
    )
    enable_skills: Skills = Field(default_factory=list, description="Skills to switch on.")
    disable_skills: Skills = Field(default_factory=list, description="Skills to switch off.")

    def to_domain(self) -> OverridesChange:
        """Give the domain's value."""
        return OverridesChange(
            options=self.options.model_dump(exclude_unset=True),
            preferences=self.preferences,
            enable_skills=tuple(self.enable_skills),
            disable_skills=tuple(self.disable_skills),
        )


class OverridesOut(Output):
    """What a session changes about its turns."""

    session_id: str
    options: Mapping[str, Any]
    preferences: Mapping[str, Any]
    enabled_skills: tuple[str, ...]
    disabled_skills: tuple[str, ...]
    own_changes: int = Field(description="How many changes its persona has made by itself.")


Trait = Annotated[float, Field(ge=0, le=1)]


class TraitsBody(OwnedInput):
    """A change of a persona's traits for one session, from its next turn on. What is left out stays."""

    persona_id: Name | None = Field(default=None, description="Whose traits. Left out: the default persona's.")
    traits: dict[Name, Trait | None] = Field(
        min_length=1,
        max_length=MOST_TRAITS,
        description="A number from 0 to 1 for each trait that changes; null gives the persona's own value back.",
        examples=[{"patience": 0.9}],
    )


class TraitsOut(Output):
    """A persona's traits as a session has them."""

    session_id: str
    persona_id: str
    traits: Mapping[str, float] = Field(description="All traits of the persona, as the session's turns are told them.")
    changed: tuple[str, ...] = Field(description="Names of those that are not the persona's own value.")
