"""What a load balancer asks."""

from collections.abc import Mapping
from typing import Literal

from app.api.schemas.base import Output


class LiveOut(Output):
    """The process answers."""

    status: Literal["ok"]


class ReadyOut(Output):
    """Whether turns can be taken, and what each check says."""

    status: Literal["ok", "unavailable"]
    checks: Mapping[str, bool]
