"""Structured replies: the model answers with one JSON value that fits a schema, and is asked again when it does not.

The provider is told the schema in its own form where it has one, else as a tool that the model must call where it can
be; the model is told it in words in any case, and what comes back is validated here always.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from app.domain.errors import StructuredOutputError, ValidationError
from app.domain.frozen import dataclass
from app.domain.jsontext import dumps_text, loads
from app.domain.messages import Message, text_of
from app.providers.base import ModelRequest
from app.tools.arguments import with_containers

MOST_ISSUES: Final = 5
LONGEST_QUOTE: Final = 500
_FENCE: Final = re.compile(r"```(?:json)?\s*\n(.*?)\n?```", re.DOTALL)


Enforcement = Literal["provider_schema", "forced_tool", "prompt_only"]
"""How a model was held to a schema: by the provider, by a tool that it had to call, or by words alone."""

Stage = Literal["model", "post_guardrail"]


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of one reply: its value, and what is wrong with it. No issues means that it is right."""

    value: Any
    issues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StructuredReply:
    """What the turn's reply must be. `max_retries` further replies are asked for; text is held back unless told."""

    schema: Mapping[str, Any]
    name: str = "reply"
    description: str | None = None
    max_retries: int = 2
    on_exhausted: Literal["error", "return_invalid"] = "error"
    stream_deltas: bool = False

    @classmethod
    def from_json(cls, given: Mapping[str, Any] | None) -> "StructuredReply | None":
        """Read the option; None when there is none. Raises ValidationError for a schema that is none."""
        if given is None:
            return None
        from jsonschema import Draft202012Validator  # noqa: PLC0415 - takes long, and most turns need none
        from jsonschema.exceptions import SchemaError  # noqa: PLC0415

        known = {name: given[name] for name in cls.__slots__ if given.get(name) is not None}
        schema = known.get("schema")
        try:
            if not isinstance(schema, Mapping):
                message = "structured_reply needs a schema, which is a JSON object."
                raise ValidationError(message, reason="STRUCTURED_REPLY_CONFIG")
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            message = f"The schema of structured_reply is no JSON Schema: {error.message[:200]}"
            raise ValidationError(message, reason="STRUCTURED_REPLY_CONFIG") from None
        return cls(**known)

    def asked_of(self, request: ModelRequest) -> ModelRequest:
        """Give the request with the schema in it: in words at the end of the prompt, and as the provider's format."""
        shape = {"name": self.name, "schema": dict(self.schema)}
        if self.description is not None:
            shape["description"] = self.description
        wanted = {"type": "json_schema", "json_schema": shape}
        return replace(request, messages=self._told(request.messages), response_format=wanted, format_is_optional=True)

    def _told(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        about = f" {self.description}" if self.description else ""
        words = (
            "When you give your final answer, give one JSON value and nothing else: no text around it, no code fence."
            f"{about} It must fit this JSON Schema: {dumps_text(dict(self.schema))}"
        )
        if messages and messages[0].role == "system":
            first = messages[0]
            return (replace(first, content=f"{text_of(first.content)}\n\n{words}"), *messages[1:])
        return (Message("system", words), *messages)

    def judge(self, text: str) -> Judged:
        """Read the value out of a reply and compare it with the schema; an object in quotes is taken for the object."""
        found = _value(text)
        if found is None:
            return Judged(None, ("The reply holds no JSON value.",))
        issues = self._issues(found[0])
        if issues:
            mended = with_containers(found[0], self.schema)
            if mended != found[0] and not self._issues(mended):
                return Judged(mended, ())
        return Judged(found[0], issues)

    def _issues(self, value: Any) -> tuple[str, ...]:
        from jsonschema import Draft202012Validator  # noqa: PLC0415 - see above

        faults = sorted(Draft202012Validator(self.schema).iter_errors(value), key=lambda fault: fault.json_path)
        return tuple(f"At {fault.json_path}: {fault.message[:200]}" for fault in faults[:MOST_ISSUES])

    def repair(self, text: str, issues: tuple[str, ...]) -> tuple[Message, Message]:
        """Give the bad reply and the request to mend it; they are sent, and not kept."""
        listed = "\n".join(f"- {issue}" for issue in issues)
        quoted = text[:LONGEST_QUOTE] + ("…" if len(text) > LONGEST_QUOTE else "")
        asked = f"That reply does not fit the JSON Schema:\n{listed}\nSend the corrected JSON value and nothing else."
        return Message("assistant", quoted or "(nothing)"), Message("user", asked)

    def told(
        self, judged: Judged, attempts: int, enforcement: Enforcement = "provider_schema", stage: Stage = "model"
    ) -> dict[str, Any]:
        """Give what `final_response` says of the reply; `stage` tells whether a guardrail has changed it."""
        shown: dict[str, Any] = {
            "value": judged.value,
            "name": self.name,
            "valid": not judged.issues,
            "attempts": attempts,
            "enforcement": enforcement,
            "stage": stage,
        }
        return shown | ({"issues": list(judged.issues)} if judged.issues else {})

    def exhausted(self, judged: Judged, attempts: int) -> StructuredOutputError:
        """Make the error of a turn whose replies never fitted."""
        message = f"None of {attempts} replies fits the schema {self.name!r}: {judged.issues[0]}"
        return StructuredOutputError(message, issues=list(judged.issues), attempts=attempts)


def _value(text: str) -> tuple[Any] | None:
    """Find the JSON value in a reply: all of it, what a code fence holds, or from the first bracket to the last."""
    candidates = [text.strip(), *(found.strip() for found in _FENCE.findall(text))]
    begin = min((place for place in (text.find("{"), text.find("[")) if place >= 0), default=-1)
    end = max(text.rfind("}"), text.rfind("]"))
    if 0 <= begin < end:
        candidates.append(text[begin : end + 1])
    for candidate in candidates:
        try:
            return (loads(candidate),)
        except ValueError:
            continue
    return None
