"""Expiry: a pause whose time is over is closed, or its turn goes on without answers, with no client there."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

import structlog

from app.domain.errors import DatabaseError, InvalidStateError, UnavailableError
from app.domain.pause import PauseEvent
from app.store.database import is_lost
from app.store.pauses import PauseRecord
from app.turn.facade.pausing import Pausing
from app.turn.orchestrator.setbacks import Setbacks

LOOK_SECONDS: Final = 1.0


class Expiry:
    """Looks for pauses that ran out; every replica does, and one of them wins each pause."""

    def __init__(
        self, pausing: Pausing, go_on: Callable[[PauseRecord], Awaitable[None]], now: Callable[[], float]
    ) -> None:
        """`go_on` continues the turn of a pause without answers; `now` is a clock in seconds that never goes back."""
        self._pausing = pausing
        self._go_on = go_on
        self._setbacks = Setbacks[str](now)
        self._log = structlog.get_logger(__name__)

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - looking goes on whatever one look met
                if not is_lost(error):
                    self._log.exception("expiry.look_failed")

    async def look(self) -> None:
        """Resolve the pauses that have run out; one that can't be is waited with, and keeps none from its end."""
        for conversation, pause_id in await self._pausing.expired(besides=self._setbacks.waiting()):
            resolved = False
            try:
                resolved = await self._resolve(conversation, pause_id)
            except Exception as error:
                if is_lost(error):
                    raise
                self._log.exception("expiry.failed", pause_id=pause_id)
            if resolved:
                self._setbacks.ended(pause_id)
            else:
                self._setbacks.failed(pause_id)

    async def _resolve(self, conversation: UUID, pause_id: str) -> bool:
        pause = await self._pausing.find(conversation, pause_id)
        if pause is not None and pause.on_expiry == "continue":
            try:
                await self._go_on(pause)
            except (InvalidStateError, UnavailableError, DatabaseError):
                # Somebody was faster; or this process can't do it now, and a later look or another process can.
                return False
            except Exception as error:  # noqa: BLE001 - what can't go on must not stay for ever: it is closed instead
                self._log.warning("expiry.can_not_continue", pause_id=pause_id, exc_info=error)
            else:
                return True
        return await self._pausing.end(conversation, pause_id, PauseEvent.EXPIRED)
