"""What all bodies share: how strict input is, how plain output is, and how long names may be."""

from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

CONVERSATION_ID: Final = "^[A-Za-z0-9._:-]{1,128}$"


class Input(BaseModel):
    """A body that comes in: unknown fields are refused, and no value is turned into another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True, defer_build=True)


class Output(BaseModel):
    """A body that goes out. Its fields have no defaults: a client always finds all of them."""

    model_config = ConfigDict(frozen=True, from_attributes=True, defer_build=True)


def not_blank(text: str) -> str:
    """Refuse text that says nothing."""
    if not text.strip():
        message = "must not be blank"
        raise ValueError(message)
    return text


def trimmed(text: str) -> str:
    """Take white space off both ends."""
    return text.strip()


NotBlank = Annotated[str, AfterValidator(not_blank)]
Name = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(not_blank)]
ConversationId = Annotated[str, Field(pattern=CONVERSATION_ID, examples=["chat-1"])]
OrganizationId = Annotated[str, Field(max_length=128), AfterValidator(trimmed)]
JsonObject = dict[str, Any]


class OwnedInput(Input):
    """A body that says for whom it is sent."""

    user_id: Name | None = Field(
        default=None,
        description="Whose conversation it is. Left out: `local` without authentication, else the key's name.",
        examples=["ada"],
    )
    organization_id: OrganizationId | None = Field(
        default=None, description="The organization; with authentication it must be the key's own."
    )
