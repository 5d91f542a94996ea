"""Asks one guard one thing: within its time, and with a rule for a guard that fails or answers nonsense."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from app.guardrails.active import ActiveGuard
from app.guardrails.base import FAILED, MALFORMED, Action, Evaluation

LETTING_GO: Final = "guardrail.failed"


class _GuardError(Exception):
    """A guard took too long, or was cancelled by something of its own."""


class Asking:
    """Asks guards. What a guard still does after its time was up is watched to its end and counts for nothing."""

    def __init__(self) -> None:
        """Start with no guard left behind."""
        self._late: set[asyncio.Task[object]] = set()
        self._log = structlog.get_logger(__name__)

    async def ask(self, guard: ActiveGuard, call: Callable[[], object]) -> Evaluation | None:
        """Give the guard's evaluation; None allows. A failure allows too, unless the guard fails closed."""
        try:
            answer = call()
            if inspect.isawaitable(answer):
                answer = await self._within(answer, guard.seconds)
        except Exception as error:  # noqa: BLE001 - whatever a guard does, there is a rule for it
            self._log.warning(LETTING_GO, guardrail_id=guard.id, closed=guard.config.fail_closed, error=repr(error))
            return _closed(FAILED, "A guardrail failed.") if guard.config.fail_closed else None
        return self._read(guard, answer)

    async def _within(self, answer: Awaitable[object], seconds: float | None) -> object:
        task = asyncio.create_task(_run(answer))
        try:
            await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            self._let_go(task)
            raise
        if not task.done():
            self._let_go(task)
            message = f"no answer within {seconds:g} seconds"
            raise _GuardError(message)
        if task.cancelled():
            message = "the guard was cancelled from within"
            raise _GuardError(message)
        return task.result()

    def _let_go(self, task: asyncio.Task[object]) -> None:
        self._late.add(task)
        task.add_done_callback(self._gone)
        task.cancel()

    def _gone(self, task: asyncio.Task[object]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()

    def _read(self, guard: ActiveGuard, answer: object) -> Evaluation | None:
        if answer is None:
            return None
        if isinstance(answer, Evaluation) and isinstance(answer.action, Action):
            return answer
        self._log.warning("guardrail.malformed", guardrail_id=guard.id, answer=type(answer).__name__)
        if guard.strict or guard.config.fail_closed:
            return _closed(MALFORMED, "A guardrail gave an answer that can't be understood.")
        return None


async def _run(answer: Awaitable[object]) -> object:
    return await answer


def _closed(code: str, reason: str) -> Evaluation:
    return Evaluation(Action.BLOCK, reason, code, metadata={"fail_closed": True})
