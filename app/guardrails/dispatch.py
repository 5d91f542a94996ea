"""The order in which guards are asked, the same for input and output.

First those that may sanitize, one after another, each with the text that the one before left; a block ends it there.
Then all others at once, on that text: they can't rewrite, so a sanitize of theirs counts as a flag. Evaluations are
told in the order in which the guards are registered, and so the first block in that order is the one that holds.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from app.domain.frozen import dataclass
from app.guardrails.active import ActiveGuard
from app.guardrails.asking import Asking
from app.guardrails.base import SEVERITY, Action, Entry, Evaluation, Unchanged

type_of_text = TypeVar("type_of_text")
Question = Callable[[ActiveGuard, type_of_text], object]
"""Calls a guard's method about a value."""


@dataclass(frozen=True, slots=True)
class Verdict(Generic[type_of_text]):
    """What the guards said: the value as it is now, all evaluations, and the block that holds, if there is one."""

    value: type_of_text
    entries: tuple[Entry, ...] = ()
    block: Entry | None = None
    changed: bool = False

    @property
    def deciding(self) -> Entry | None:
        """The first block, else the first of the worst evaluations."""
        if self.block is not None or not self.entries:
            return self.block
        return max(self.entries, key=lambda entry: SEVERITY[entry.evaluation.action])

    @property
    def action(self) -> Action:
        """What was done: block, or sanitize when a text was changed, else the worst that was said."""
        if self.block is not None:
            return Action.BLOCK
        if self.changed:
            return Action.SANITIZE
        deciding = self.deciding
        return deciding.evaluation.action if deciding is not None else Action.ALLOW


async def judge(
    asking: Asking,
    guards: Sequence[ActiveGuard],
    value: type_of_text,
    question: Question[type_of_text],
    rewrite: Callable[[type_of_text, str | None], type_of_text],
) -> Verdict[type_of_text]:
    """Ask all guards about the value. `rewrite` gives the value with another text."""
    said: dict[int, Entry] = {}
    changed = False
    for place, guard in enumerate(guards):
        if not guard.config.can_sanitize:
            continue
        answer = await asking.ask(guard, lambda guard=guard, value=value: question(guard, value))  # type: ignore[misc]
        if answer is None:
            continue
        said[place] = Entry(guard.id, answer)
        if answer.action is Action.BLOCK:
            return Verdict(value, tuple(said.values()), said[place], changed)
        if answer.action is Action.SANITIZE and not isinstance(answer.modified_text, Unchanged):
            value = rewrite(value, answer.modified_text)
            changed = True
    others = [(place, guard) for place, guard in enumerate(guards) if not guard.config.can_sanitize]
    answers = await _at_once(asking, [guard for _, guard in others], lambda guard: question(guard, value))
    for (place, guard), answer in zip(others, answers, strict=True):
        if answer is not None:
            said[place] = Entry(guard.id, _no_rewrite(answer))
    entries = tuple(said[place] for place in sorted(said))
    block = next((entry for entry in entries if entry.evaluation.action is Action.BLOCK), None)
    return Verdict(value, entries, block, changed)


async def _at_once(
    asking: Asking, guards: Sequence[ActiveGuard], call: Callable[[ActiveGuard], object]
) -> list[Evaluation | None]:
    if len(guards) == 1:
        return [await asking.ask(guards[0], lambda: call(guards[0]))]
    asked = (asking.ask(guard, lambda guard=guard: call(guard)) for guard in guards)  # type: ignore[misc]
    return list(await asyncio.gather(*asked))


def _no_rewrite(answer: Evaluation) -> Evaluation:
    if answer.action is not Action.SANITIZE:
        return answer
    reason = f"{answer.reason or 'The text is to be changed.'} (This guard may not change it: taken as a flag.)"
    return replace(answer, action=Action.FLAG, reason=reason)
