"""Ceilings: how long an input and a reply may be, and what an operation may cost."""

from app.domain.messages import text_of
from app.domain.turn import TurnInput
from app.guardrails.base import Action, Evaluation, GuardConfig, GuardContext, OutputChunk, Sources
from app.guardrails.terms import Ceilings


class Ceiling:
    """Blocks what goes beyond; a reply is stopped while it is written."""

    id = "ceiling"
    config = GuardConfig(evaluate_streaming_chunks=True, also=frozenset({"tool_call_request"}))

    def __init__(self, ceilings: Ceilings) -> None:
        """Keep the ceilings."""
        self._most = ceilings

    def evaluate_input(self, context: GuardContext, turn: TurnInput) -> Evaluation | None:
        """Measure the input's text."""
        del context
        return _beyond("The input", "characters", len(text_of(turn.input)), self._most.input_characters)

    def evaluate_output(self, context: GuardContext, chunk: OutputChunk, sources: Sources) -> Evaluation | None:
        """Measure the reply, and what it took."""
        del sources
        if chunk.type == "error":
            return None
        spent = context.spent()
        length = chunk.before + len(chunk.text or "")
        return (
            _beyond("The reply", "characters", length, self._most.reply_characters)
            or _beyond("The turn", "tokens", spent.tokens, self._most.tokens)
            or _beyond("The operation", "US dollars", spent.dollars, self._most.dollars)
        )


def _beyond(what: str, unit: str, found: float, most: float | None) -> Evaluation | None:
    if most is None or found <= most:
        return None
    reason = f"{what} takes more than the {most:g} {unit} that are allowed."
    return Evaluation(Action.BLOCK, reason, "CEILING_EXCEEDED", metadata={"most": most, "unit": unit})
