"""A Python client of the HTTP interface, for hosts: turns as events, and a helper that runs a host's tools.

It needs nothing else of the runtime, so a host may live in another process or on another machine.
"""

from app.client.connection import Connection, RefusedError
from app.client.events import Event
from app.client.tools import Approval, HostTool, ToolMissingError, deny, run_turn_with_tools

__all__ = [
    "Approval",
    "Connection",
    "Event",
    "HostTool",
    "RefusedError",
    "ToolMissingError",
    "deny",
    "run_turn_with_tools",
]
