"""A gateway over two scripted providers, for the tests of the gateway."""

import asyncio
from contextlib import aclosing
from typing import Any

from app.domain.errors import ProviderError, ProviderUnavailableError
from app.domain.messages import Message
from app.domain.usage import Usage
from app.providers.attempts import AttemptRecord, GatewayEvent
from app.providers.base import ModelRequest
from app.providers.errors import failure
from app.providers.gateway import Gateway, GatewayPolicy, Route
from app.providers.registry import ProviderRegistry
from app.providers.scripted import ScriptedProvider
from tests.providers.reading import BOUND

REQUEST = ModelRequest("ignored", (Message("user", "hi"),), extra_body={"seed": 1})
ROUTE = Route("one:m1", fallbacks=("two:m2",))
ALONE = Route("one:m1", fallbacks=())


def broken(reason: str, *, retry_after: float | None = None, usage: Usage | None = None) -> ProviderError:
    error = failure(reason, "scripted", f"It is {reason}.", retry_after=retry_after)
    error.usage = usage
    return error


class Stage:
    """A gateway over two scripted providers; its waits are noted, not waited for."""

    def __init__(self, one: Any = (), two: Any = (), **policy: Any) -> None:
        self.one = ScriptedProvider(one, name="one")
        self.two = ScriptedProvider(two, name="two")
        self.waits: list[float] = []
        self.records: list[AttemptRecord] = []
        self.seconds = 0.0
        self.gateway = Gateway(
            ProviderRegistry([self.one, self.two]),
            GatewayPolicy(**policy),
            on_attempt=self.records.append,
            sleep=self._sleep,
            chance=lambda: 1.0,
            now=lambda: self.seconds,
        )

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    async def ask(self, route: Route = ROUTE) -> tuple[list[GatewayEvent], Exception | None]:
        given: list[GatewayEvent] = []
        try:
            async with asyncio.timeout(BOUND), aclosing(self.gateway.stream(route, REQUEST)) as events:
                async for event in events:
                    given.append(event)  # noqa: PERF401 - what came before the error is given too
        except (ProviderError, ProviderUnavailableError) as error:
            return given, error
        return given, None
