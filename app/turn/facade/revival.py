"""Starts operations again that another process had begun: they are published like any other."""

from functools import partial

from app.turn.facade.guard_stage import GuardStage
from app.turn.facade.publisher import Publisher
from app.turn.facade.tasks import Task, Tasks
from app.turn.orchestrator.rerun import Rerun
from app.turn.orchestrator.services import Services


class Revival:
    """Runs what a takeover has reclaimed, as tasks of this runtime."""

    def __init__(self, services: Services, tasks: Tasks) -> None:
        """`tasks` are those of all operations, so that a drain waits for these too."""
        self._services = services
        self._tasks = tasks
        self._guards = GuardStage(services.guards)

    def start(self, rerun: Rerun) -> Task:
        """Run the operation again from behind its acceptance."""
        operation = rerun.operation(self._services)
        own = operation.persona.turn_timeout_seconds if operation.persona is not None else None
        longest = self._services.policy.longest(rerun.options.turn_timeout_seconds, own)
        guard = self._guards.again(operation, rerun)
        publisher = Publisher(operation, timeout=longest, taken_pause=rerun.entry.pause_id, guard=guard)
        operation.adopt(rerun.entry.operation, rerun.held.fence)
        return self._tasks.start(
            publisher.run(partial(rerun.run, operation)), f"{operation.kind.value} {operation.stream_id} again"
        )
