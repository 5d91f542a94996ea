"""Secrets that leak: keys of well-known services, and this service's own, in replies and in what tools are told."""

from collections.abc import Sequence
from typing import Final, Literal

from app.domain.jsontext import dumps_text
from app.guardrails.base import Action, Evaluation, GuardConfig, GuardContext, OutputChunk, Sources
from app.guardrails.rules.credentials import masked

REACH: Final = 200


class SecretLeak:
    """Puts `[secret]` in the place of secrets in replies, or blocks; a tool is never told one."""

    id = "secrets"

    def __init__(self, action: Literal["sanitize", "block"] = "sanitize", own: Sequence[str] = ()) -> None:
        """`own` are the values that this service itself must not tell."""
        self.config = GuardConfig(
            can_sanitize=action == "sanitize",
            evaluate_streaming_chunks=action == "block",
            fail_closed=True,
            also=frozenset({"tool_call_request", "ui_command"}),
        )
        self._action = Action(action)
        self._own = tuple(own)

    def evaluate_output(self, context: GuardContext, chunk: OutputChunk, sources: Sources) -> Evaluation | None:
        """Look at the text, or at all that a request carries."""
        del context, sources
        if chunk.text is None:
            leaks = chunk.type in self.config.also and self._masked(dumps_text(chunk.fields)) is not None
            return Evaluation(Action.BLOCK, "A secret would be told to a tool.", "SECRET_LEAK") if leaks else None
        blocks = self._action is Action.BLOCK
        left = self._masked(chunk.so_far[-REACH:] + chunk.text if blocks else chunk.text)
        if left is None:
            return None
        return Evaluation(self._action, "There is a secret in the text.", "SECRET_LEAK", modified_text=left)

    def _masked(self, text: str) -> str | None:
        left = masked(text, self._own)
        return None if left == text else left
