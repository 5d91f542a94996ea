"""The body of a turn, and what a turn's operation answers when it is not streamed."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from app.api.schemas.base import Input, JsonObject, Name, NotBlank, Output, OwnedInput
from app.api.schemas.json_schema import check_object_schema, check_schema
from app.api.schemas.parts import TextOrParts, as_content
from app.domain.feedback import Feedback, Polarity
from app.domain.language import Detected
from app.domain.tools import FailureMode, ToolSpec
from app.domain.turn import Caller, Effort, OnBusy, OnExpiry, TurnInput, TurnOptions

Language = Annotated[str, Field(min_length=1, max_length=64, examples=["en", "de-AT"])]
Flag = str | int | float | bool | None
_MODEL: Final = re.compile(r"[^:\s]+:\S+")


def _object_schema(schema: JsonObject) -> JsonObject:
    check_object_schema(schema)
    return schema


def _any_schema(schema: JsonObject) -> JsonObject:
    check_schema(schema)
    return schema


class ToolInput(Input):
    """A tool that the host runs itself: when the model asks for it, the turn pauses."""

    name: str = Field(pattern="^[A-Za-z0-9_-]{1,64}$", description="Its name.", examples=["get_weather"])
    description: str = Field(default="", max_length=16_384, description="What it does, told to the model.")
    input_schema: Annotated[JsonObject, AfterValidator(_object_schema)] = Field(
        default={"type": "object", "properties": {}},
        description="JSON Schema of its arguments; the root must be of type object.",
        examples=[{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}],
    )

    def to_domain(self) -> ToolSpec:
        """Give the domain's value."""
        return ToolSpec(self.name, self.description, self.input_schema)


Patterns = Annotated[list[Annotated[str, Field(min_length=1, max_length=128)]], Field(max_length=128)]


class ToolGateInput(Input):
    """A rule on calls, by patterns such as `get_*`; a refused call is not run, and the model is told so."""

    allow: Patterns | None = Field(default=None, description="Only these; all when left out.", examples=[["get_*"]])
    deny: Patterns = Field(default_factory=list, description="None of these.", examples=[["delete_*"]])


class StructuredReplyInput(Input):
    """A reply as data: the model is asked again, up to `max_retries` times, while what it says does not fit."""

    schema_: Annotated[JsonObject, AfterValidator(_any_schema)] = Field(
        alias="schema", description="JSON Schema of the reply."
    )
    name: str = Field(default="reply", pattern="^[A-Za-z0-9_-]{1,64}$", description="Its name, told to the model.")
    description: str | None = Field(default=None, min_length=1, max_length=4096, description="What the reply is.")
    max_retries: int = Field(default=2, ge=0, le=5, description="How often the model is asked again.")
    on_exhausted: Literal["error", "return_invalid"] = Field(
        default="error",
        description="What to do when no reply fits: fail the turn, or give the last one with its issues.",
    )
    stream_deltas: bool = Field(default=False, description="Stream the text before it is checked.")


class OptionsInput(Input):
    """Options of one operation; what is left out is decided by the persona and the settings."""

    provider: str | None = Field(
        default=None,
        pattern="^[^:\\s]+$",
        max_length=64,
        description="Whose `model` it is, where that does not say so.",
    )
    model: str | None = Field(
        default=None,
        max_length=256,
        validate_default=True,
        description="`provider:model`, or beside `provider` the model's own name.",
        examples=["openai:gpt-4o-mini"],
    )
    temperature: float | None = Field(default=None, ge=0, le=2, description="How freely the model chooses.")
    top_p: float | None = Field(default=None, gt=0, le=1, description="Share of likely tokens to choose from.")
    max_tokens: int | None = Field(default=None, ge=1, le=10_000_000, description="Longest answer of a model step.")
    max_tool_iterations: int | None = Field(default=None, ge=1, le=100, description="Tool rounds of the turn.")
    reasoning_effort: Effort | None = Field(default=None, description="How much a model that reasons is to think.")
    response_format: JsonObject | None = Field(default=None, description="Passed to the provider as it is.")
    structured_reply: StructuredReplyInput | None = Field(
        default=None,
        description="The reply must be a JSON value that fits a schema; `final_response.structured` has it.",
    )
    turn_timeout_seconds: float | None = Field(default=None, gt=0, le=86_400, description="Longest time to run.")
    mode: str | None = Field(
        default=None, min_length=1, max_length=128, description="The turn's mode; it picks the profile of its summary."
    )
    tool_failure_mode: FailureMode | None = Field(
        default=None, description="Whether the turn goes on (`fail_open`) when a tool of the runtime fails, or fails."
    )
    tool_gate: ToolGateInput | None = Field(default=None, description="Which tools may be called in this turn.")
    custom_flags: dict[str, Any] = Field(default_factory=dict, description="Flags for phases and guardrails.")

    @field_validator("model")
    @classmethod
    def _whole_name(cls, model: str | None, known: ValidationInfo) -> str | None:
        """Give the model with its provider; with `provider`, all that stands in `model` is the name."""
        provider = known.data.get("provider")
        if provider is not None:
            if model is None:
                message = "name the model of the provider as well"
                raise ValueError(message)
            model = f"{provider}:{model.removeprefix(f'{provider}:')}"
        if model is not None and not _MODEL.fullmatch(model):
            message = "should match the pattern `provider:model`, or be the model's own name beside `provider`"
            raise ValueError(message)
        return model

    def to_domain(self) -> TurnOptions:
        """Give the domain's value."""
        gate = self.tool_gate.model_dump(exclude_none=True) if self.tool_gate is not None else None
        reply = (
            self.structured_reply.model_dump(exclude_none=True, by_alias=True)
            if self.structured_reply is not None
            else None
        )
        own = dict(self)
        del own["provider"]  # it is in the model's name
        return TurnOptions(**{**own, "tool_gate": gate, "structured_reply": reply})


class MemoryScopesInput(Input):
    """Who shares what is remembered; what is left out stays as it was."""

    conversation: bool | None = Field(default=None, description="What was said in this conversation.")
    user: bool | None = Field(default=None, description="What is known of the user, in all conversations.")
    persona: bool | None = Field(default=None, description="What is known of the user, with this persona alone.")
    organization: bool | None = Field(default=None, description="What all users of the organization share.")


class MemoryRetrievalInput(Input):
    """How much is recalled, within the service's bounds."""

    top_k: int | None = Field(default=None, ge=1, le=50, description="Memories of each scope.")
    max_characters: int | None = Field(default=None, ge=300, le=12_000, description="Characters of all of them.")


class LongTermMemoryInput(Input):
    """What this conversation may use of long-term memory, from this turn on; what is left out stays as it was."""

    enabled: bool | None = Field(default=None, description="Whether anything is recalled or remembered.")
    scopes: MemoryScopesInput | None = Field(default=None, description="Whose memories it reads and adds to.")
    share_with_organization: bool | None = Field(default=None, description="Whether others may find what it remembers.")
    store_atomic_docs: bool | None = Field(default=None, description="Whether single facts are remembered, each alone.")
    allowed_categories: list[Name] | None = Field(
        default=None,
        max_length=32,
        description="Categories that may be recalled: `facts`, `preferences`, `people`, `projects`, `decisions`, "
        "`open_loops`, `todo`, `tags`; an empty list allows none.",
    )
    retrieval: MemoryRetrievalInput | None = Field(default=None, description="How much is recalled.")


class MemoryControlInput(Input):
    """What is said of memory."""

    long_term_memory: LongTermMemoryInput | None = Field(default=None, description="What is kept over conversations.")

    def to_domain(self) -> dict[str, Any] | None:
        """Give the long-term part, without what was left out; None where nothing was said of it."""
        return self.long_term_memory.model_dump(exclude_none=True) if self.long_term_memory is not None else None


Keys = Annotated[dict[Name, NotBlank], Field(max_length=16)]


class DetectedInput(Input):
    """A language that the input may be in, and how surely."""

    code: Language = Field(description="The language, as in `language_hint`.")
    confidence: float = Field(ge=0, le=1, description="How sure that is, from 0 to 1.")


class FeedbackInput(Input):
    """What the user thinks of an answer. The label counts before the score, of which 4 and 5 are good, 1 and 2 bad."""

    label: Polarity | None = Field(default=None, description="How it was found.")
    score: int | None = Field(default=None, ge=1, le=5, description="How many of five stars.")
    comment: str | None = Field(default=None, max_length=2000, description="In the user's words.")
    turn_id: Name | None = Field(default=None, description="The turn that it is about.")


class TurnBody(OwnedInput):
    """One turn: what the user says, and what this turn may use."""

    input: TextOrParts = Field(
        description="What the user says: text, or a list of typed parts.", examples=["What is the weather in Berlin?"]
    )
    persona_id: Name | None = Field(default=None, description="Who answers; the service's default when left out.")
    session_id: Name | None = Field(default=None, description="The session; the conversation's id when left out.")
    tools: list[ToolInput] = Field(default_factory=list, max_length=128, description="Host tools of this turn.")
    options: OptionsInput = Field(default_factory=OptionsInput, description="Options of this turn.")
    user_context: JsonObject = Field(default_factory=dict, description="What is known of the user in this turn.")
    user_feedback: FeedbackInput | None = Field(
        default=None, description="What the user thinks of an earlier answer; it goes into the session's trace."
    )
    language_hint: Language | None = Field(default=None, description="The language the input is in.")
    detected_languages: list[DetectedInput] = Field(
        default_factory=list, max_length=16, description="Languages that the input may be in, the likeliest first."
    )
    target_language: Language | None = Field(default=None, description="The language to answer in.")
    memory_control: MemoryControlInput = Field(
        default_factory=MemoryControlInput, description="What the conversation may use of long-term memory."
    )
    provider_api_keys: Keys = Field(
        default_factory=dict, description="Keys by provider for this turn; never stored and never logged."
    )
    on_disconnect: Literal["continue", "cancel"] = Field(
        default="continue",
        description="What becomes of the operation when the client goes away before its response has ended.",
    )
    on_pause: Literal["end", "reject"] = Field(
        default="end", description="What to do when the conversation waits for tool results: end that, or refuse."
    )
    on_busy: OnBusy = Field(
        default="reject",
        description="What to do when a turn runs on the conversation: be refused, wait, cancel it and keep what it has "
        "said, or cancel it and leave it out of what the model is told from then on.",
    )
    pause_ttl_seconds: float | None = Field(
        default=None,
        gt=0,
        le=366 * 86_400,
        description="How long this turn's pauses are held; the persona's when left out.",
    )
    on_expiry: OnExpiry | None = Field(
        default=None,
        description="What happens when a pause runs out: it is closed, or the turn goes on without answers.",
    )

    @field_validator("tools")
    @classmethod
    def _names_differ(cls, tools: list[ToolInput]) -> list[ToolInput]:
        refuse_twice([tool.name for tool in tools], "two tools are named")
        return tools

    def to_domain(self, caller: Caller, conversation_id: str, key: str | None = None) -> TurnInput:
        """Give the facade's input."""
        return TurnInput(
            caller=caller,
            conversation_id=conversation_id,
            session_id=self.session_id or conversation_id,
            input=as_content(self.input),
            persona_id=self.persona_id,
            tools=tuple(tool.to_domain() for tool in self.tools),
            options=self.options.to_domain(),
            user_context=self.user_context,
            user_feedback=Feedback(**dict(self.user_feedback)) if self.user_feedback is not None else None,
            language_hint=self.language_hint,
            detected_languages=tuple(Detected(found.code, found.confidence) for found in self.detected_languages),
            target_language=self.target_language,
            long_term_memory=self.memory_control.to_domain(),
            provider_api_keys=self.provider_api_keys,
            on_pause=self.on_pause,
            on_busy=self.on_busy,
            pause_ttl_seconds=self.pause_ttl_seconds,
            on_expiry=self.on_expiry,
            idempotency_key=key,
        )


class StartedOut(Output):
    """An operation that runs: read its stream's events to follow it."""

    stream_id: str
    conversation_id: str
    turn_id: str


def refuse_twice(names: Sequence[str], words: str) -> None:
    """Raise ValueError when a name comes twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            message = f"{words} {name!r}; each may come once"
            raise ValueError(message)
        seen.add(name)
