"""Moderation by a model provider's own endpoint."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol

from app.domain.messages import text_of
from app.domain.turn import TurnInput
from app.guardrails.base import Action, Evaluation, GuardConfig, GuardContext, OutputChunk, Sources


class Opinion(Protocol):
    """What the endpoint says of a text."""

    @property
    def flagged(self) -> bool: ...
    @property
    def categories(self) -> tuple[str, ...]: ...
    @property
    def scores(self) -> Mapping[str, float]: ...


class Moderation:
    """Blocks or flags what the endpoint objects to."""

    id = "moderation"

    def __init__(
        self,
        ask: Callable[[str], Awaitable[Opinion]],
        *,
        action: Literal["block", "flag"] = "block",
        categories: Sequence[str] = (),
        timeout_ms: float = 5000,
        fail_closed: bool = False,
    ) -> None:
        """Without `categories` all of the endpoint's count. `ask` raises when there is no opinion to be had."""
        self.config = GuardConfig(timeout_ms=timeout_ms, fail_closed=fail_closed)
        self._ask = ask
        self._action = Action(action)
        self._categories = frozenset(categories)

    async def evaluate_input(self, context: GuardContext, turn: TurnInput) -> Evaluation | None:
        """Ask about the input's text."""
        del context
        return await self._judge(text_of(turn.input))

    async def evaluate_output(self, context: GuardContext, chunk: OutputChunk, sources: Sources) -> Evaluation | None:
        """Ask about the reply."""
        del context, sources
        return await self._judge(chunk.text or "")

    async def _judge(self, text: str) -> Evaluation | None:
        if not text.strip():
            return None
        opinion = await self._ask(text)
        named = [name for name in opinion.categories if not self._categories or name in self._categories]
        if not opinion.flagged or (self._categories and not named):
            return None
        scores = {name: round(opinion.scores[name], 3) for name in named if name in opinion.scores}
        reason = f"The text is not acceptable: {', '.join(named) or 'the provider does not say why'}."
        return Evaluation(self._action, reason, "MODERATION_FLAGGED", metadata={"categories": named, "scores": scores})
