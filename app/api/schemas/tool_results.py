"""Bodies that bring the results of host tools, on the stream of the pause or by a resume."""

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from app.api.schemas.base import Input, JsonObject, Name, NotBlank, Output, OwnedInput
from app.api.schemas.turns import Keys, OptionsInput, refuse_twice
from app.domain.tools import EXTERNAL_ERROR_CODE, Decision, ToolResult
from app.domain.turn import Caller, ResultsInput


class ApprovalInput(Input):
    """What a person says to a call of the kind `approval`."""

    approved: bool = Field(description="Whether the service may run the call.")
    arguments: JsonObject | None = Field(
        default=None, description="Run it with these arguments instead; they are validated as the model's own are."
    )
    reason: NotBlank | None = Field(default=None, max_length=4096, description="Why; a refusal's is told to the model.")
    approved_by: Name | None = Field(default=None, description="Who decided; the caller's user id when left out.")

    @model_validator(mode="after")
    def _changes_what_is_run(self) -> "ApprovalInput":
        if self.arguments is not None and not self.approved:
            message = "arguments belong to a call that is approved"
            raise ValueError(message)
        return self


class ResultInput(Input):
    """The answer to one call of the pause."""

    tool_call_id: Name = Field(description="The call's id, from the request.", examples=["call_1"])
    tool_name: Name | None = Field(default=None, description="The tool's name; the pause knows it too.")
    output: Any = Field(
        default=None,
        description="What the tool gave: any JSON value. A list of typed parts (text, image_url, image, audio, file) "
        "is shown to the model as such, where its provider takes it. Needed unless the call failed.",
        examples=[{"temperature_c": 21}],
    )
    is_error: bool = Field(default=False, description="Whether the call failed.")
    error_message: NotBlank | None = Field(
        default=None, max_length=16_384, description="Why it failed; told to the model."
    )

    approval: ApprovalInput | None = Field(
        default=None, description="The decision on a call of the kind `approval`; it takes the place of an output."
    )

    @model_validator(mode="after")
    def _says_something(self) -> "ResultInput":
        if self.approval is not None:
            if self.is_error or "output" in self.model_fields_set:
                message = "a decision comes without an output: the service runs the call itself"
                raise ValueError(message)
            return self
        if self.error_message is not None and not self.is_error:
            message = "error_message belongs to a result with is_error: true"
            raise ValueError(message)
        if not self.is_error and "output" not in self.model_fields_set:
            message = "output is missing: send what the tool gave (null is a value), or is_error: true"
            raise ValueError(message)
        return self

    def to_domain(self) -> ToolResult:
        """Give the domain's value."""
        told = None
        if self.error_message is not None:
            told = {"code": EXTERNAL_ERROR_CODE, "message": self.error_message}
        decision = None
        if self.approval is not None:
            said = self.approval
            decision = Decision(said.approved, said.arguments, said.reason, said.approved_by)
        return ToolResult(self.tool_call_id, self.tool_name or "", self.output, self.is_error, told, decision)


class ToolResultsBody(OwnedInput):
    """Results for the pause that a stream holds."""

    pause_id: Name | None = Field(default=None, description="The pause that is meant; refused when another is held.")
    results: list[ResultInput] = Field(min_length=1, max_length=256, description="One entry for each call.")
    options: OptionsInput = Field(default_factory=OptionsInput, description="Options of the continuation.")
    provider_api_keys: Keys = Field(
        default_factory=dict, description="Keys by provider for the continuation; never stored and never logged."
    )
    on_disconnect: Literal["continue", "cancel"] = Field(
        default="continue",
        description="What becomes of the operation when the client goes away before its response has ended.",
    )
    partial: bool = Field(
        default=False,
        description="Whether more results will come: then the pause waits until every call has one. "
        "Otherwise calls that are left out are answered as not run.",
    )

    @field_validator("results")
    @classmethod
    def _calls_differ(cls, results: list[ResultInput]) -> list[ResultInput]:
        refuse_twice([result.tool_call_id for result in results], "two results are for the call")
        return results

    def to_domain(
        self,
        caller: Caller,
        *,
        key: str | None = None,
        stream_id: str | None = None,
        conversation_id: str | None = None,
    ) -> ResultsInput:
        """Give the facade's input."""
        return ResultsInput(
            caller=caller,
            results=tuple(result.to_domain() for result in self.results),
            stream_id=stream_id,
            conversation_id=conversation_id,
            pause_id=self.pause_id,
            options=self.options.to_domain(),
            provider_api_keys=self.provider_api_keys,
            partial=self.partial,
            idempotency_key=key,
        )


class PartialOut(Output):
    """What a pause has and still lacks after results that do not complete it."""

    pause_id: str
    received: tuple[str, ...]
    missing: tuple[str, ...]


class ResumeBody(ToolResultsBody):
    """Results for the named pause of a conversation, taken onto a new stream."""

    pause_id: Name = Field(description="The pause that is meant.")
