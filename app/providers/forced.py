"""A reply as a value from servers that take no schema: the arguments of a tool that the model has to call.

The tool is never run, and nobody above sees that there was one: the call's arguments are the reply's text. A server
that does not take it either is asked without, and the prompt's words have to do.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Final, Literal

from app.domain.frozen import dataclass
from app.domain.tools import ToolSpec
from app.providers.base import CallPiece, CallsReady, CallStarted, Finish, ModelRequest, ProviderEvent, TextPiece
from app.providers.wire import dumps_text

_NAME: Final = "give_reply"
_TOLD: Final = "Give the final answer, as the arguments of this call."


def with_forced_tool(request: ModelRequest) -> ModelRequest | None:
    """Give the request with a tool in place of its schema; None where there can be none.

    Arguments are an object, so the value must be one; and a model that has tools of its own is not kept from them.
    """
    wanted = request.response_format or {}
    shape: Any = wanted.get("json_schema") if wanted.get("type") == "json_schema" else None
    schema = shape.get("schema") if isinstance(shape, Mapping) else None
    if request.tools or not isinstance(schema, Mapping) or schema.get("type") != "object":
        return None
    tool = ToolSpec(_NAME, str(shape.get("description") or _TOLD), schema)
    return replace(request, tools=(tool,), tool_choice="required", response_format=None)


@dataclass(slots=True)
class Reply:
    """How a model is held to a request's schema, and what its answer's events are then.

    Without `form` it is the provider's own way, and events are as they come.
    """

    form: Literal["forced_tool", "prompt_only"] | None = None
    _beside: list[TextPiece] = field(default_factory=list)
    _told: bool = False

    def next(self, request: ModelRequest) -> "Reply":
        """Give the next way, after one that the server refused."""
        can_force = self.form is None and with_forced_tool(request) is not None
        return Reply("forced_tool" if can_force else "prompt_only")

    def asked(self, request: ModelRequest) -> ModelRequest:
        """Give the request as it is sent."""
        forced = with_forced_tool(request) if self.form == "forced_tool" else None
        return forced or replace(request, response_format=None)

    def told(self, events: list[ProviderEvent]) -> list[ProviderEvent]:
        """Give what the events are. What a model says beside the call is told only if it makes none."""
        return events if self.form is None else [told for event in events for told in self._of(event)]

    def _of(self, event: ProviderEvent) -> Iterator[ProviderEvent]:
        if isinstance(event, Finish):
            if not self._told:
                yield from self._beside
            reason = "stop" if self._told and event.reason == "tool_calls" else event.reason
            yield replace(event, reason=reason, form=self.form)
        elif self.form == "prompt_only":
            yield event
        else:
            yield from self._of_call(event)

    def _of_call(self, event: ProviderEvent) -> Iterator[ProviderEvent]:
        match event:
            case TextPiece():
                self._beside.append(event)
            case CallPiece(0, text):
                self._told = True
                yield TextPiece(text)
            case CallsReady(calls) if not self._told:
                self._told = True
                yield TextPiece(calls[0].invalid or dumps_text(dict(calls[0].arguments)))
            case CallStarted() | CallPiece() | CallsReady():
                pass  # one value was asked for; a second call is none
            case _:
                yield event
