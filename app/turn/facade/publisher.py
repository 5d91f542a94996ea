"""Judged, committed, announced: what an operation says, in that order, to its stream."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Any, Final

import structlog

from app.domain.chunks import StreamChunk
from app.domain.errors import AppError, InternalError, TurnTimeoutError, UnavailableError
from app.domain.generators import aclosing
from app.domain.turn import StreamStatus
from app.memory.embedding import embeddings_told
from app.observability.spans import here, spanned, spanned_in_pieces
from app.store.claims import ReplicaGoneError
from app.store.database import OutcomeUnknownError
from app.store.inbound import KeyTakenError
from app.streaming.ring import LostFenceError, Ring
from app.turn.facade.guarded_stream import GuardedStream
from app.turn.orchestrator.effects import Outcome
from app.turn.orchestrator.execution import Begin, Emission, cut_short, outside_failure, read_back
from app.turn.orchestrator.operation import Operation
from app.turn.orchestrator.settlement import settle

_log = structlog.get_logger("app.turn")

ACCOUNT_SECONDS: Final = 2.0
RETRY_AFTER: Final = 5
"""Seconds after which a process that goes has most likely been replaced."""


class Publisher:
    """Drives one operation to its end, whatever becomes of its readers."""

    def __init__(
        self,
        operation: Operation,
        *,
        timeout: float,
        taken_pause: str | None = None,
        close_reason: str | None = None,
        guard: GuardedStream | None = None,
    ) -> None:
        """`timeout` bounds the whole operation, in seconds.

        `taken_pause` is the pause that it answers; `close_reason` is told by a stream that this operation closes.
        `guard` judges what the operation says.
        """
        self._operation = operation
        self._timeout = timeout
        self._taken_pause = taken_pause
        self._close_reason = close_reason
        self._guard = guard
        self._began = perf_counter()
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False
        self._settling = False
        self._accounted = False
        operation.cancel = self.cancel

    def cancel(self) -> None:
        """End the operation soon: what it has is kept. Without effect once its outcome is being written."""
        if self._task is not None and not self._cancelled and not self._settling:
            self._cancelled = True
            self._task.cancel()

    async def run(self, begin: Begin) -> None:
        """Publish everything; never raises for a failure of the turn.

        A refusal before T1 goes to whoever waits for the operation to be accepted.
        """
        self._task = asyncio.current_task()
        operation = self._operation
        try:
            with self._spanned(), embeddings_told(operation.calls.append):
                operation.trace = here()
                back = read_back(operation, begin)
                del begin  # it has what the operation is prepared from
                async with back as raw:
                    await self._read(raw if self._guard is None else self._guard.read(raw))
        except asyncio.CancelledError:
            if not self._cancelled or self._operation.ring is None:
                raise
            if self._task is not None:
                self._task.uncancel()
            await self._last_word(cut_short(self._operation, StreamStatus.CANCELLED, "cancelled"))
        finally:
            self._close()
            await self._account()

    def _spanned(self) -> AbstractContextManager[Any]:
        operation = self._operation
        about = {"stream_id": operation.stream_id, "turn_id": operation.turn_id}
        return spanned(f"operation.{operation.kind.value}", about)

    async def _read(self, emissions: AsyncIterator[Emission]) -> None:
        try:
            async with asyncio.timeout(self._timeout) as deadline, aclosing(emissions) as items:
                async for item in items:
                    if isinstance(item, Outcome):
                        # From here on nothing may break in: an outcome is written whole.
                        deadline.reschedule(None)
                        await self._settle(item)
                        return
                    await self._publish(item)
        except LostFenceError:
            self._line("lost")
        except TimeoutError:
            message = f"The turn was ended after {self._timeout:g} seconds."
            await self._failed(TurnTimeoutError(message))
        except Exception as error:  # noqa: BLE001 - every failure has an outcome
            await self._failed(error)

    async def _publish(self, item: StreamChunk) -> None:
        operation = self._operation
        if not operation.goes_on:
            await operation.may_go_on()
        if item.type == "text_delta" and not operation.touched:
            await operation.touch()
        operation.emit(item)

    async def _settle(self, outcome: Outcome) -> None:
        self._settling = True
        with spanned_in_pieces("operation.settle", {"fermata.status": outcome.status.value}):
            await settle(
                self._operation,
                self._ring(),
                outcome,
                taken_pause=self._taken_pause,
                close_reason=self._close_reason,
            )
        self._accounted = True
        self._line(outcome.status.value, error=(outcome.error or {}).get("code"))

    async def _failed(self, error: Exception) -> None:
        operation = self._operation
        refused = not operation.accepted.done()
        if refused and isinstance(error, KeyTakenError | ReplicaGoneError | OutcomeUnknownError):
            # Whoever waits for the operation knows what each of these asks for.
            operation.refuse(error)
            self._line("refused", error=type(error).__name__)
            return
        if not isinstance(error, AppError):
            _log.exception("operation.failed", stream_id=operation.stream_id, exc_info=error)
            error = InternalError()
        if refused:
            operation.refuse(error)
            self._line("refused", error=error.code)
        elif isinstance(error, TurnTimeoutError):
            await self._last_word(cut_short(operation, StreamStatus.FAILED, "timeout", error))
        else:
            await self._last_word(outside_failure(operation, error))

    async def _last_word(self, outcome: Outcome) -> None:
        try:
            if self._guard is not None and not self._ring().lost:
                outcome = await self._guard.last_word(outcome)
            await self._settle(outcome)
        except LostFenceError:
            self._line("lost", error=(outcome.error or {}).get("code"))
        except Exception as error:  # noqa: BLE001 - the takeover ends what this process no longer works on
            _log.exception("operation.not_settled", stream_id=self._operation.stream_id, exc_info=error)

    async def _account(self) -> None:
        """Keep what was asked of models in an operation without an outcome of its own: it was billed all the same."""
        operation = self._operation
        if self._accounted or not operation.fence or not operation.calls:
            return
        try:
            async with asyncio.timeout(ACCOUNT_SECONDS), operation.services.database.transaction() as connection:
                await operation.keep_calls(connection)
        except Exception as error:  # noqa: BLE001 - the ledger lacks a row, and that is all
            _log.warning("usage.not_kept", stream_id=operation.stream_id, error=type(error).__name__)

    def _ring(self) -> Ring:
        if self._operation.ring is None:
            message = "an outcome came before the operation was accepted"
            raise RuntimeError(message)
        return self._operation.ring

    def _close(self) -> None:
        operation = self._operation
        # Without these two the operation and this would hold each other, with all that was said, until the collector
        # comes: for what has lived as long as a turn does, that is seldom.
        self._task, operation.cancel = None, _ended
        operation.services.cancels.leave(operation)
        if operation.ring is not None:
            operation.services.cancels.forget(operation.fence)
            operation.ring.close()
            operation.services.rings.drop(operation.ring)
        if not operation.accepted.done():
            # Only a process that goes ends what somebody still waits for before it was accepted.
            message = "This replica is shutting down and did not take the operation; send the request again."
            operation.refuse(UnavailableError(message, retry_after=RETRY_AFTER))

    def _line(self, status: str, *, error: str | None = None) -> None:
        """Log the one line that each operation gets."""
        operation = self._operation
        ring, usage = operation.ring, operation.tally.usage
        seconds = perf_counter() - self._began
        operation.services.metrics.operation(operation.kind.value, status, seconds)
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
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            held_seconds=round(self._guard.held_seconds, 3) if self._guard is not None else None,
            seconds=round(seconds, 3),
        )


def _ended() -> None:
    """Cancel nothing: the operation has ended."""
