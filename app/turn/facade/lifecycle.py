"""The runtime's life: what runs beside the operations, how it begins, and how it ends."""

from collections.abc import Coroutine
from typing import Any

import structlog

from app.domain.errors import UnavailableError
from app.store.database import is_lost
from app.turn.facade.publisher import RETRY_AFTER
from app.turn.facade.retention import Retention
from app.turn.facade.revival import Revival
from app.turn.facade.tasks import Tasks
from app.turn.gmi.personas import PersonaFolder
from app.turn.orchestrator.services import Services
from app.turn.orchestrator.takeover import Takeover


class Lifecycle:
    """Starts and stops the lease, the log writer, the takeover and all operations."""

    def __init__(self, services: Services, takeover: Takeover, retention: Retention, *, drain_grace: float) -> None:
        """`drain_grace` is how many seconds running operations get at the end."""
        self._services = services
        self._takeover = takeover
        self._drain_grace = drain_grace
        self._retention = retention
        self._beside = Tasks()
        self._folder: PersonaFolder | None = None
        self._open = self._drained = False
        self._log = structlog.get_logger(__name__)
        self.tasks = Tasks()

    async def start(self) -> None:
        """Register this replica and start what runs beside operations; raises when the database can't be reached."""
        await self._services.lease.start()
        if missing := await self._services.database.missing_guards():
            self._log.warning(
                "database.guards_missing",
                settings=missing,
                hint="Behind a pooler only the role can set them: ALTER ROLE … SET, as the README says. Without them "
                "a process that hangs inside a transaction blocks the one that takes over.",
            )
        self._beside.start(self._services.lease.run(), "lease")
        self._beside.start(self._services.log.run(), "event log")
        self._beside.start(self._services.wakeups.run(), "wake-ups")
        revival = Revival(self._services, self.tasks)
        self._sweeping = self._beside.start(self._takeover.run(revival.start), "takeover")
        self._beside.start(self._services.cancels.run(), "cancels")
        if self._services.aids.outcomes is not None:
            self._beside.start(self._services.aids.outcomes.run(), "task outcomes")
        self._beside.start(self._retention.run(), "retention")
        self._beside.start(self._services.gateway.registry.open(), "model client")
        self._beside.start(self._services.plain_text.open(), "plain text")
        for source in self._services.tools.registry.sources:
            self._beside.start(source.run(), "tools of others")
        if self._folder is not None:
            self._beside.start(self._folder.run(), "personas")
        self._open = True

    def watch(self, folder: PersonaFolder) -> None:
        """Read the personas again when their folder changes, from the start on."""
        self._folder = folder

    def beside(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run something beside the operations until the runtime stops."""
        self._beside.start(coroutine, name)

    def check_open(self) -> None:
        """Raise UnavailableError while this replica takes no operations."""
        if not self._open:
            message = "This replica is shutting down and takes no new operations; send the request again."
            raise UnavailableError(message, retry_after=RETRY_AFTER)

    async def readiness(self) -> dict[str, bool]:
        """Give the checks by name."""
        return {
            "accepting": self._open,
            "lease": self._services.lease.holds(),
            "database": await self._services.database.ping(),
        }

    async def drain(self) -> None:
        """Refuse what is new, let what runs end within the grace, and hand over the rest: others take it at once."""
        if self._drained:
            return
        self._open, self._drained = False, True
        self._sweeping.cancel()
        if not await self.tasks.wait(self._drain_grace):
            self._log.warning("drain.handed_over", operations=len(self.tasks))
        await self._services.background.stop()
        self._services.lease.hold_still()
        try:
            await self._services.log.settle()
            await self._services.lease.leave()
        except Exception as error:  # noqa: BLE001 - a drain goes on to its end
            if not is_lost(error):
                self._log.exception("drain.leave_failed")
        for ring in self._services.rings.all():
            ring.lose()
        await self.tasks.cancel()

    async def stop(self) -> None:
        """Give everything back, after a drain."""
        await self._beside.cancel()
        await self._services.gmis.close()
        await self._services.gateway.registry.aclose()
        await self._services.database.close()
