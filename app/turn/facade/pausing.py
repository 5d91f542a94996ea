"""What happens to a held pause without its turn going on: partial results, a cancel, the end of its time."""

from collections.abc import Collection
from typing import Final
from uuid import UUID

import structlog

from app.domain.errors import InvalidStateError
from app.domain.pause import PauseEvent, PauseState
from app.domain.tools import ToolResult
from app.domain.views import PartialResults
from app.store import claims, messages, pauses
from app.store.database import Connection
from app.store.pauses import PauseRecord
from app.turn.orchestrator.queue import free
from app.turn.orchestrator.services import Services
from app.turn.pauses import keeper
from app.turn.pauses.results import check_results, is_complete, merged

AT_ONCE: Final = 50


class Pausing:
    """Changes of held pauses, one conversation a transaction."""

    def __init__(self, services: Services) -> None:
        """Keep what is needed."""
        self._services = services
        self._log = structlog.get_logger(__name__)

    async def keep_partial(self, pause: PauseRecord, results: tuple[ToolResult, ...]) -> PartialResults | None:
        """Store results with the pause; None, with nothing stored, when they complete it and the turn goes on."""
        async with self._services.database.transaction() as connection:
            seen = await self._held(connection, pause.conversation, pause.pause_id)
            check_results(seen, results)
            if is_complete(seen, results):
                return None
            stored = merged(seen, results)
            if len(stored) > len(seen.results):
                await pauses.keep_partial(connection, seen, stored)
        received = {result.tool_call_id for result in stored}
        calls = [call.id for call in pause.calls]
        return PartialResults(
            pause.pause_id,
            received=tuple(call for call in calls if call in received),
            missing=tuple(call for call in calls if call not in received),
        )

    async def end(self, conversation: UUID, pause_id: str, event: PauseEvent) -> bool:
        """End a held pause without its host: calls answered, stream closed. False when it is no longer held."""
        async with self._services.database.transaction() as connection:
            fence = await claims.take_idle(connection, conversation)
            if fence is None:
                return False
            try:
                seen = await self._held(connection, conversation, pause_id)
            except InvalidStateError:
                return False
            new = await keeper.end(connection, seen, event=event, fence=fence, now=self._services.clock.now())
            await messages.append(connection, conversation, new if self._services.policy.persistence else ())
        self._services.wakeups.wake([seen.stream_id, free(conversation)])
        self._services.metrics.pause_ended(event.value)
        self._log.info("pause.ended", pause_id=pause_id, by=event.value, stream_id=seen.stream_id)
        return True

    async def find(self, conversation: UUID, pause_id: str) -> PauseRecord | None:
        """Give a pause, whatever its state."""
        async with self._services.database.transaction() as connection:
            return await pauses.find(connection, conversation, pause_id)

    async def expired(self, *, besides: Collection[str]) -> list[tuple[UUID, str]]:
        """Give held pauses whose time is over, `besides` left out."""
        async with self._services.database.transaction() as connection:
            return await pauses.expired(connection, AT_ONCE, besides=besides)

    async def _held(self, connection: Connection, conversation: UUID, pause_id: str) -> PauseRecord:
        seen = await pauses.find(connection, conversation, pause_id, for_update=True)
        if seen is None or seen.state is not PauseState.HELD:
            message = "The pause was continued or ended in the meantime."
            raise InvalidStateError(message, pause_id=pause_id)
        return seen
