"""One GMI per session (R135). The built-in one keeps nothing between operations, so any replica can make it anew."""

from app.domain.ids import gmi_instance_id
from app.domain.turn import Caller
from app.observability.metrics import Metrics
from app.providers.gateway import Gateway
from app.tools.executor import ToolExecutor
from app.turn.gmi.base import Gmi
from app.turn.gmi.instance import RuntimeGmi


class GmiManager:
    """Gives the GMI of a session and persona. Its instance id is the same on every replica and after a restart."""

    def __init__(self, gateway: Gateway, tools: ToolExecutor, metrics: Metrics | None = None) -> None:
        """Keep what GMIs are made of."""
        self._gateway = gateway
        self._tools = tools
        self._metrics = metrics or Metrics()

    async def acquire(self, caller: Caller, session_id: str, persona_id: str) -> Gmi:
        """Give the session's GMI for the persona."""
        instance_id = gmi_instance_id(caller.organization_id, caller.user_id, session_id, persona_id)
        return RuntimeGmi(instance_id, self._gateway, self._tools, self._metrics)

    async def close(self) -> None:
        """Do nothing: the runtime's own GMIs hold nothing."""
