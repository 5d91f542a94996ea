"""What an operator sets about guardrails: which there are, which are required, and how those that ship work."""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.guardrails.terms import KINDS, Ceilings, Kind, RequiredGuard, Stage

Milliseconds = Annotated[float, Field(gt=0, le=3_600_000)]
Count = Annotated[int, Field(ge=1)]

BOTH: Final[list[Stage]] = ["input", "output"]


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class RequiredOptions(_Options):
    """A guard that must be there; each of its answers within `timeout_ms`."""

    id: str = Field(min_length=1)
    stages: list[Stage] = Field(default=BOTH, min_length=1)
    timeout_ms: Milliseconds | None = None

    def entry(self) -> RequiredGuard:
        """Give what the registry is told."""
        return RequiredGuard(self.id, tuple(self.stages), self.timeout_ms)


class PiiOptions(_Options):
    """Personal data: what is looked for, where, and what becomes of it."""

    action: Literal["sanitize", "block", "flag"] = "sanitize"
    kinds: list[Kind] = list(KINDS)
    stages: list[Stage] = Field(default=BOTH, min_length=1)


class PresidioOptions(_Options):
    """Personal data by Presidio: what is looked for, how surely (0 to 1), in which language, by which spaCy model."""

    action: Literal["sanitize", "block", "flag"] = "sanitize"
    entities: list[str] | None = Field(default=None, min_length=1)
    language: str = Field(default="en", pattern="^[a-z]{2,3}$")
    model: str | None = Field(default=None, min_length=1)
    least: float = Field(default=0.4, ge=0, le=1)
    stages: list[Stage] = Field(default=BOTH, min_length=1)
    timeout_ms: Milliseconds = 15_000
    fail_closed: bool = False


class SecretsOptions(_Options):
    """Secrets in replies."""

    action: Literal["sanitize", "block"] = "sanitize"


class InjectionOptions(_Options):
    """Inputs that look like prompt injection."""

    action: Literal["block", "flag"] = "block"


class ModerationOptions(_Options):
    """Moderation by a provider's endpoint; without `categories` all of them count."""

    model: str = Field(default="openai:omni-moderation-latest", pattern="^[^:\\s]+:\\S+$")
    action: Literal["block", "flag"] = "block"
    categories: list[str] = []
    timeout_ms: Milliseconds = 5000
    fail_closed: bool = False


class GroundingOptions(_Options):
    """Replies against their sources; without `model` the utility model judges. `least` is the share to be supported."""

    model: str | None = Field(default=None, pattern="^[^:\\s]+:\\S+$")
    action: Literal["block", "flag"] = "flag"
    least: float = Field(default=0.7, ge=0, le=1)
    timeout_ms: Milliseconds = 15_000
    fail_closed: bool = False


class CeilingOptions(_Options):
    """Ceilings on lengths in characters, on the tokens of a turn, and on the dollars of an operation."""

    input_characters: Count | None = None
    reply_characters: Count | None = None
    tokens: Count | None = None
    dollars: float | None = Field(default=None, gt=0, le=1_000_000)

    def ceilings(self) -> Ceilings:
        """Give what the guard is told."""
        return Ceilings(self.input_characters, self.reply_characters, self.tokens, self.dollars)


class GuardOptions(_Options):
    """How the guards that ship work, by their names."""

    pii: PiiOptions = Field(default_factory=PiiOptions.model_construct)
    presidio: PresidioOptions = Field(default_factory=PresidioOptions.model_construct)
    secrets: SecretsOptions = Field(default_factory=SecretsOptions.model_construct)
    prompt_injection: InjectionOptions = Field(default_factory=InjectionOptions.model_construct)
    moderation: ModerationOptions = Field(default_factory=ModerationOptions.model_construct)
    grounding: GroundingOptions = Field(default_factory=GroundingOptions.model_construct)
    ceiling: CeilingOptions = Field(default_factory=CeilingOptions.model_construct)


class GuardrailSettings(BaseModel):
    """The settings of guardrails, as part of all settings."""

    model_config = ConfigDict(defer_build=True)

    guardrails: list[str] = Field(
        default_factory=list,
        description="Guardrails that judge every operation, in their order (JSON list of names): those that ship, and "
        "those of installed packages.",
    )
    guardrail_output_mode: Literal["stream", "hold", "sentence", "until_input_ok"] = Field(
        default="stream",
        description="When text goes out: `stream` at once, `hold` with the verdict on the whole reply, `sentence` as "
        "each is judged. `until_input_ok` is `stream`, and judges the input while the turn is prepared.",
    )
    guardrail_max_held_characters: int = Field(
        default=200_000,
        ge=100,
        description="How many characters of a reply are held at most, in `hold` and `sentence`; past that it is "
        "judged in parts.",
    )
    guardrail_deny_patterns: list[str] = Field(
        default_factory=list,
        description="Regular expressions of what is not talked about (JSON list); with one, `topics` judges all.",
    )
    guardrail_allow_patterns: list[str] = Field(
        default_factory=list, description="Regular expressions of which each input must match one (JSON list)."
    )
    guardrail_options: GuardOptions = Field(
        default_factory=GuardOptions.model_construct,
        repr=False,
        description="How the guardrails that ship work: a JSON object by their names.",
    )
    required_guardrails: list[RequiredOptions] = Field(
        default_factory=list,
        description="Guardrails without which nothing runs: JSON list of {id, stages, timeout_ms}. They fail closed.",
    )
