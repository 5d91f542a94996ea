"""The one function that judges an input, wherever one comes from (R14)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.domain.errors import GuardrailBlockedError
from app.domain.turn import TurnInput
from app.guardrails.active import ActiveGuard
from app.guardrails.asking import Asking
from app.guardrails.base import GuardContext
from app.guardrails.dispatch import Verdict, judge


async def judge_input(
    asking: Asking, guards: Sequence[ActiveGuard], context: GuardContext, turn: TurnInput
) -> Verdict[TurnInput]:
    """Give the verdict with the turn as it may go on; without guards that is the same object.

    A sanitizer changes text alone: images and audio stay as they are. Guards don't see provider keys.
    """
    asked = [guard for guard in guards if guard.on_input is not None]
    if not asked:
        return Verdict(turn)
    shown = replace(turn, provider_api_keys={})
    verdict = await judge(asking, asked, shown, lambda guard, value: _ask(guard, context, value), with_text)
    return replace(verdict, value=replace(turn, input=verdict.value.input) if verdict.changed else turn)


def refuse_blocked(verdict: Verdict[TurnInput]) -> None:
    """Raise GuardrailBlockedError when the input is blocked: with the guard's own code, where it gave one."""
    block = verdict.block
    if block is not None:
        raise GuardrailBlockedError(
            block.message, code=block.code, action=block.evaluation.action.value, metadata=block.to_json()["metadata"]
        )


def _ask(guard: ActiveGuard, context: GuardContext, turn: TurnInput) -> object:
    return guard.on_input(context, turn) if guard.on_input is not None else None


def with_text(turn: TurnInput, text: str | None) -> TurnInput:
    """Give the turn with another text; of typed parts, the first text part gets it and further ones go."""
    if isinstance(turn.input, str):
        return replace(turn, input=text or "")
    parts: list[Mapping[str, Any]] = []
    left = text or ""
    for part in turn.input:
        if part.get("type") != "text":
            parts.append(part)
        elif left:
            parts.append({**part, "text": left})
            left = ""
    if left:
        parts.insert(0, {"type": "text", "text": left})
    return replace(turn, input=[dict(part) for part in parts])
