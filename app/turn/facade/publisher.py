"""Judged, committed, announced: what an operation says, in that order, to its stream."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from time import perf_counter

import structlog

from app.domain.errors import AppError, InternalError, TurnTimeoutError
from app.domain.turn import StreamStatus
from app.domain.usage import Usage
from app.streaming.ring import LostFenceError, Ring
from app.turn.orchestrator.effects import Outcome
from app.turn.orchestrator.execution import Emission, outside_failure
from app.turn.orchestrator.operation import Operation
from app.turn.orchestrator.settlement import settle

_log = structlog.get_logger("app.turn")


class Publisher:
    """Drives one operation to its end, whatever becomes of its readers."""

    def __init__(self, operation: Operation, *, timeout: float, taken_pause: str | None = None) -> None:
        """`timeout` bounds the whole operation, in seconds; `taken_pause` is the pause that it answers."""
        self._operation = operation
        self._timeout = timeout
        self._taken_pause = taken_pause
        self._began = perf_counter()
        self._usage = Usage()

    async def run(self, emissions: AsyncIterator[Emission]) -> None:
        """Publish everything; never raises for a failure of the turn.

        A refusal before T1 goes to whoever waits for the operation to be accepted.
        """
        operation = self._operation
        try:
            async with asyncio.timeout(self._timeout), aclosing(emissions) as items:  # type: ignore[type-var]
                async for item in items:
                    await self._publish(item)
        except LostFenceError:
            self._line("lost")
        except Exception as error:  # noqa: BLE001 - every failure has an outcome
            await self._failed(error)
        finally:
            self._close()
            if not operation.accepted.done():
                operation.accepted.set_exception(InternalError("The operation ended before it was accepted."))

    async def _publish(self, item: Emission) -> None:
        operation = self._operation
        if isinstance(item, Outcome):
            await self._settle(item)
            return
        if item.type == "text_delta":
            await operation.may_go_on()
            await operation.touch()
        operation.emit(item)

    async def _settle(self, outcome: Outcome) -> None:
        ring = self._ring()
        await settle(self._operation, ring, outcome, taken_pause=self._taken_pause)
        self._usage = outcome.usage
        self._line(outcome.status.value, error=(outcome.error or {}).get("code"))

    async def _failed(self, error: Exception) -> None:
        operation = self._operation
        if isinstance(error, TimeoutError):
            error = TurnTimeoutError(f"The turn was ended after {self._timeout:g} seconds.")
        if not isinstance(error, AppError):
            _log.exception("operation.failed", stream_id=operation.stream_id, exc_info=error)
            error = InternalError()
        if not operation.accepted.done():
            operation.accepted.set_exception(error)
            self._line("refused", error=error.code)
            return
        try:
            await self._settle(outside_failure(operation, error.code, error.message, self._usage))
        except LostFenceError:
            self._line("lost", error=error.code)

    def _ring(self) -> Ring:
        if self._operation.ring is None:
            message = "an outcome came before the operation was accepted"
            raise RuntimeError(message)
        return self._operation.ring

    def _close(self) -> None:
        ring = self._operation.ring
        if ring is not None:
            ring.close()
            self._operation.services.rings.drop(ring)

    def _line(self, status: str, *, error: str | None = None) -> None:
        """Log the one line that each operation gets."""
        operation = self._operation
        ring = operation.ring
        level = _log.warning if status in {StreamStatus.FAILED.value, "lost"} else _log.info
        level(
            "operation",
            kind=operation.kind.value,
            status=status,
            error=error,
            conversation_id=operation.conversation_id,
            stream_id=operation.stream_id,
            turn_id=operation.turn_id,
            organization_id=operation.caller.organization_id or None,
            user_id=operation.caller.user_id,
            frames=ring.last_n if ring else 0,
            prompt_tokens=self._usage.prompt_tokens,
            completion_tokens=self._usage.completion_tokens,
            seconds=round(perf_counter() - self._began, 3),
        )
