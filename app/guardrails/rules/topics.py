"""Topics by patterns: what may not be spoken of, and, where there are allowed ones, what turns must be about."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from app.domain.errors import ConfigurationError
from app.domain.jsontext import dumps_text
from app.domain.messages import text_of
from app.domain.turn import TurnInput
from app.guardrails.base import Action, Evaluation, GuardConfig, GuardContext, OutputChunk, Sources
from app.guardrails.rules.wording import latin, plain

REACH: Final = 200
"""How much of the text before a piece is looked at with it: a match may begin there."""


class Topics:
    """Blocks texts in which a denied pattern is found, and inputs in which no allowed one is."""

    id = "topics"
    config = GuardConfig(
        evaluate_streaming_chunks=True, fail_closed=True, also=frozenset({"tool_call_request", "ui_command"})
    )

    def __init__(self, deny: Sequence[str] = (), allow: Sequence[str] = ()) -> None:
        """Patterns are regular expressions without regard to case; ConfigurationError names one that is none."""
        self._deny = [_compiled(pattern) for pattern in deny]
        self._allow = [_compiled(pattern) for pattern in allow]

    def evaluate_input(self, context: GuardContext, turn: TurnInput) -> Evaluation | None:
        """Look at the input's text."""
        del context
        text = text_of(turn.input)
        denied = self._denied((text,))
        if denied is None and self._allow and text.strip() and not any(map(self._is_allowed, (text, plain(text)))):
            return Evaluation(Action.BLOCK, "This is not among the things that are talked about here.")
        return denied

    def evaluate_output(self, context: GuardContext, chunk: OutputChunk, sources: Sources) -> Evaluation | None:
        """Look at pieces with what stands before them, at whole replies, and at what requests and commands carry."""
        del context, sources
        if chunk.text is None:
            return self._denied((dumps_text(chunk.fields),)) if chunk.type in self.config.also else None
        rendered = chunk.fields.get("final_response_text_plain")
        return self._denied((chunk.so_far[-REACH:] + chunk.text, rendered if isinstance(rendered, str) else ""))

    def _is_allowed(self, text: str) -> bool:
        return any(pattern.search(text) for pattern in self._allow)

    def _denied(self, texts: Iterable[str]) -> Evaluation | None:
        forms = dict.fromkeys(form for text in texts for form in (text, plain(text), latin(text)))
        for place, pattern in enumerate(self._deny):
            if any(pattern.search(form) for form in forms):
                reason = "This is about something that is not talked about here."
                return Evaluation(Action.BLOCK, reason, metadata={"pattern": place})
        return None


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        message = f"{pattern!r} is no regular expression ({error}); correct it in the guardrails' patterns."
        raise ConfigurationError(message) from None
