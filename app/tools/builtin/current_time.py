"""The time, in any zone."""

from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo

from app.domain.clock import Clock
from app.domain.tools import ToolSpec
from app.tools.base import ToolContext, ToolError


class CurrentTime:
    """Tells the current date and time."""

    spec = ToolSpec(
        name="current_time",
        description="Gives the current date and time, in UTC or in the time zone that is asked for.",
        input_schema={
            "type": "object",
            "properties": {
                "time_zone": {"type": "string", "description": "A zone of the IANA data base, such as Europe/Berlin."}
            },
            "additionalProperties": False,
        },
    )

    def __init__(self, clock: Clock) -> None:
        """Keep the clock."""
        self._clock = clock

    async def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Give the time; ToolError for a zone that nobody knows."""
        del context
        name = arguments.get("time_zone") or "UTC"
        try:
            zone = ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            message = f"{name} is not a known time zone; use a name such as Europe/Berlin."
            raise ToolError(message) from None
        now = self._clock.now().astimezone(zone)
        return {"time": now.isoformat(timespec="seconds"), "time_zone": name, "weekday": now.strftime("%A")}
