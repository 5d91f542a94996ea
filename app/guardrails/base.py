"""What a guard is, what it is asked, and what it may answer.

A guard is a plain object. It may have `id`, `stages` (of "input" and "output"), `config`, and one or both of these
methods, `async` or not; each gives an `Evaluation`, or None to allow:

    evaluate_input(self, context: GuardContext, turn: TurnInput) -> Evaluation | None
    evaluate_output(self, context: GuardContext, chunk: OutputChunk, sources: Sources) -> Evaluation | None
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum, StrEnum
from typing import Any, Final

from app.domain.frozen import dataclass
from app.domain.usage import ModelCall

Sources = Sequence[Mapping[str, Any]]

BLOCKED: Final = "GUARDRAIL_BLOCKED"
FAILED: Final = "GUARDRAIL_ERROR"
MALFORMED: Final = "GUARDRAIL_MALFORMED"


class Action(StrEnum):
    """What a guard wants done, the mildest first."""

    ALLOW = "allow"
    SANITIZE = "sanitize"
    FLAG = "flag"
    BLOCK = "block"


SEVERITY: Final[Mapping[Action, int]] = {action: place for place, action in enumerate(Action)}


class Unchanged(Enum):
    """The one value that says that a text stays as it is; None and the empty text are texts."""

    TEXT = "unchanged"


UNCHANGED: Final = Unchanged.TEXT


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One guard's answer.

    `reason` and `metadata` are shown to clients, so they must not hold what is to be kept from them. `modified_text`
    is what a sanitizer makes of the text. A block with a `replacement_text` answers with that instead of an error.
    """

    action: Action
    reason: str | None = None
    reason_code: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    modified_text: str | Unchanged | None = UNCHANGED
    replacement_text: str | None = None


@dataclass(frozen=True, slots=True)
class GuardConfig:
    """How a guard is run.

    `evaluate_streaming_chunks`: it is asked about text while that is written, at most `max_streaming_evaluations` times
    for each stream of an operation. `can_sanitize`: it may change the text; such guards are asked one after another.
    `timeout_ms`: how long it may take; None or 0 for ever. `fail_closed`: its failure blocks. `streaming_mode` is only
    declared. `also`: further types of chunk that it wants to see, such as `tool_call_request` or `ui_command`.
    `whole_reply`: it can judge nothing but the whole reply, so that there is no going sentence by sentence with it.
    """

    evaluate_streaming_chunks: bool = False
    max_streaming_evaluations: int | None = None
    can_sanitize: bool = False
    timeout_ms: float | None = None
    fail_closed: bool = False
    streaming_mode: str | None = None
    also: frozenset[str] = frozenset()
    whole_reply: bool = False


@dataclass(frozen=True, slots=True)
class Spent:
    """What a turn's tokens and an operation's requests come to; `dollars` counts requests whose price is known."""

    tokens: int = 0
    dollars: float = 0.0


def _forget(call: ModelCall) -> None:
    """Let a call go: nobody keeps the books."""


@dataclass(frozen=True, slots=True)
class GuardContext:
    """For whom the guard is asked. `metadata` is the turn's `custom_flags`.

    `spent` gives what the operation has used by now, `on_call` keeps what a guard's own model request used.
    """

    user_id: str
    session_id: str
    persona_id: str | None = None
    conversation_id: str | None = None
    organization_id: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    spent: Callable[[], Spent] = Spent
    on_call: Callable[[ModelCall], None] = _forget


@dataclass(frozen=True, slots=True)
class OutputChunk:
    """What an output guard is asked about: its type, its text where it has one, and all its fields.

    The text of a `text_delta` is the piece (or sentences) that would go out now, `so_far` the end of the text before
    it, and `before` how many characters that text has. The text of a final chunk is the whole reply.
    """

    type: str
    text: str | None
    is_final: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)
    so_far: str = ""
    before: int = 0

    def with_text(self, text: str | None) -> "OutputChunk":
        """Give the chunk with another text."""
        name = {"text_delta": "text_delta", "final_response": "final_response_text"}.get(self.type)
        return replace(self, text=text, fields=self.fields if name is None else {**self.fields, name: text})


@dataclass(frozen=True, slots=True)
class Entry:
    """An evaluation and whose it is."""

    guard_id: str | None
    evaluation: Evaluation

    @property
    def code(self) -> str:
        """The code of a block."""
        return self.evaluation.reason_code or BLOCKED

    @property
    def message(self) -> str:
        """The sentence of a block."""
        return self.evaluation.reason or "A guardrail does not let this pass."

    def to_json(self) -> dict[str, Any]:
        """Give the form that chunks show in their metadata."""
        metadata = dict(self.evaluation.metadata)
        if self.guard_id is not None:
            metadata["guardrail_id"] = self.guard_id
        return {
            "action": self.evaluation.action.value,
            "reason": self.evaluation.reason,
            "reason_code": self.evaluation.reason_code,
            "metadata": metadata or None,
        }


def shown(entries: Sequence[Entry], *, silent: bool = False) -> list[dict[str, Any]]:
    """Give the entries as metadata; with `silent`, those that allow are left out."""
    return [entry.to_json() for entry in entries if not silent or entry.evaluation.action is not Action.ALLOW]
